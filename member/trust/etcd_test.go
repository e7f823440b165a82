package trust_test

import (
	"crypto/tls"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"meridian/member/directory"
	"meridian/member/directory/etcd"
	"meridian/member/trust"
)

// startEtcd runs an etcd with the settings that the package comment names, and
// returns where it answers.
func startEtcd(t *testing.T, f trust.Files) string {
	t.Helper()
	c := embed.NewConfig()
	c.Name, c.Dir = "external", t.TempDir()
	noPeers := url.URL{Scheme: "http", Host: "localhost:0"}
	c.ListenPeerUrls, c.AdvertisePeerUrls, c.InitialCluster = nil, []url.URL{noPeers}, "external="+noPeers.String()
	listen := url.URL{Scheme: "https", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{listen}, []url.URL{listen}
	c.EnableGRPCGateway = false
	c.ClientTLSInfo = transport.TLSInfo{
		CertFile: f.Cert, KeyFile: f.Key, TrustedCAFile: f.CA, ClientCertAuth: true,
	}
	c.TlsMinVersion = "TLS1.3"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not start")
	}
	return "https://" + server.Clients[0].Addr().String()
}

// put writes a record with a client of its own.
func put(t *testing.T, endpoint string, with *tls.Config) error {
	t.Helper()
	d, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{endpoint}, TLS: with})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Put(t.Context(), directory.Entry{Key: "a"})
	return errors.Join(err, d.Close(t.Context()))
}

// cell is a CA whose certificates a test takes as it needs them.
type cell struct {
	t  *testing.T
	ca *trust.Authority
}

func newCell(t *testing.T) cell {
	t.Helper()
	ca, err := trust.CreateAuthority(trust.AuthorityOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return cell{t, ca}
}

func (c cell) issue(r trust.Request) trust.Files {
	c.t.Helper()
	files, err := c.ca.Issue(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return files
}

func (c cell) open(o trust.Options) *trust.Source {
	c.t.Helper()
	source, err := trust.Open(o)
	if err != nil {
		c.t.Fatal(err)
	}
	return source
}

func TestDirectoryWithTLS(t *testing.T) {
	c, other := newCell(t), newCell(t)
	certificate := c.issue(trust.Request{Name: "directory", Hosts: []string{"127.0.0.1"}})
	endpoint := startEtcd(t, certificate)
	var ahead atomic.Int64 // of the clock
	// An agent's own hosts are no matter: etcd must not compare them with where it dials from.
	a := c.open(trust.Options{
		Files: c.issue(trust.Request{Name: "a", Hosts: []string{"10.9.8.7"}}),
		Now:   func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	client := a.HostClient("10.0.0.1", "127.0.0.1")
	if err := put(t, endpoint, client); err != nil {
		t.Fatal(err)
	}
	// Both sides take up new certificates; the same client goes on.
	c.issue(trust.Request{Name: "directory", Renew: true})
	c.issue(trust.Request{Name: "a", Renew: true, Days: trust.IssuedDays + 1})
	before := a.NotAfter()
	ahead.Store(int64(time.Minute))
	if err := put(t, endpoint, client); err != nil || !a.NotAfter().After(before) {
		t.Errorf("%v; the certificate ends at %v, before at %v", err, a.NotAfter(), before)
	}
	for name, c := range map[string]struct {
		with *tls.Config
		says string
	}{
		"another host": {a.HostClient("localhost"), "it is for [127.0.0.1], not for [localhost]"},
		"other CA":     {other.open(trust.Options{Files: other.issue(trust.Request{Name: "a"})}).HostClient("127.0.0.1"), trust.ErrAuthority.Error()},
		"unproven":     {&tls.Config{InsecureSkipVerify: true}, ""}, // it may find the door shut before it hears why
	} {
		if err := put(t, endpoint, c.with); !errors.Is(err, directory.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

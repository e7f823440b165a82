package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"meridian/member/directory"
	"meridian/member/trust"
)

func newAuthority(t *testing.T) *trust.Authority {
	t.Helper()
	ca, err := trust.CreateAuthority(trust.AuthorityOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *trust.Authority, r trust.Request) trust.Files {
	t.Helper()
	files, err := ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func source(t *testing.T, files trust.Files) *trust.Source {
	t.Helper()
	s, err := trust.Open(trust.Options{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Beyond loopback only those come in who have a certificate of the directory's
// CA.
func TestBeyondLoopbackWithTLS(t *testing.T) {
	ca := newAuthority(t)
	s := start(t, Options{
		Dir: stateDir(t), Listen: "https://0.0.0.0:0", TLS: issue(t, ca, trust.Request{Name: "directory", Hosts: []string{"127.0.0.1"}}),
	})
	listening, err := url.Parse(s.Endpoint())
	if err != nil || listening.Scheme != "https" {
		t.Fatalf("the endpoint is %s: %v", s.Endpoint(), err)
	}
	mine := source(t, issue(t, ca, trust.Request{Name: "a"})).HostClient("127.0.0.1")
	for name, c := range map[string]struct {
		scheme string
		with   *tls.Config
		let    bool
	}{
		"an agent of the cell": {"https", mine, true},
		"no certificate":       {"https", &tls.Config{InsecureSkipVerify: true}, false},
		"another cell's agent": {"https", source(t, issue(t, newAuthority(t), trust.Request{Name: "a"})).HostClient("127.0.0.1"), false},
		"without TLS":          {"http", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			patience := time.Second // the library tries again for as long as it may
			if c.let {
				patience = 10 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			client, err := clientv3.New(clientv3.Config{
				Endpoints: []string{c.scheme + "://127.0.0.1:" + listening.Port()}, TLS: c.with, Logger: zap.NewNop(), DialTimeout: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.Put(ctx, "a", "1"); (err == nil) != c.let {
				t.Errorf("let in: %v, want %v: %v", err == nil, c.let, err)
			}
		})
	}
}

// TLS 1.2 is refused, whatever certificate comes with it.
func TestOldTLSIsRefused(t *testing.T) {
	ca := newAuthority(t)
	files := issue(t, ca, trust.Request{Name: "directory", Hosts: []string{"127.0.0.1"}})
	s := start(t, Options{Dir: stateDir(t), Listen: "https://127.0.0.1:0", TLS: files})
	endpoint, _ := url.Parse(s.Endpoint())
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	for version, refused := range map[uint16]bool{tls.VersionTLS12: true, tls.VersionTLS13: false} {
		conn, err := tls.Dial("tcp", endpoint.Host, &tls.Config{
			InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, MaxVersion: version, NextProtos: []string{"h2"},
		})
		if (err != nil) != refused {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestBadCertificatesAreRefused(t *testing.T) {
	ca := newAuthority(t)
	good := issue(t, ca, trust.Request{Name: "directory", Hosts: []string{"127.0.0.1"}})
	homeless := issue(t, ca, trust.Request{Name: "a"})
	foreign := good
	foreign.CA = issue(t, newAuthority(t), trust.Request{Name: "b"}).CA
	exposed := issue(t, ca, trust.Request{Name: "exposed", Hosts: []string{"127.0.0.1"}})
	if err := os.Chmod(exposed.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		listen string
		files  trust.Files
		want   error
	}{
		"no certificate":       {"https://127.0.0.1:0", trust.Files{}, directory.ErrInvalid},
		"no host in it":        {"https://127.0.0.1:0", homeless, directory.ErrInvalid},
		"another CA's":         {"https://127.0.0.1:0", foreign, trust.ErrAuthority},
		"a key others read":    {"https://127.0.0.1:0", exposed, trust.ErrExposed},
		"one, but plain http":  {"http://0.0.0.0:0", good, directory.ErrInvalid},
		"one, but no port":     {"https://127.0.0.1", good, directory.ErrInvalid},
		"one, but a host name": {"https://directory.example:2379", good, directory.ErrInvalid},
	} {
		s, err := Open(t.Context(), Options{Dir: stateDir(t), Listen: c.listen, TLS: c.files})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if s != nil {
			stop(t, s)
		}
	}
}

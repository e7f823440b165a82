package etcd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"meridian/member/directory"
	"meridian/member/directory/etcd"
)

// identity writes a certificate that vouches for itself, and its key.
func identity(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, data := range map[string][]byte{certFile: certificate, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return certFile, keyFile, pool
}

// An etcd that others run, with TLS on both sides.
func TestExternalWithTLS(t *testing.T) {
	certFile, keyFile, pool := identity(t)
	c := embed.NewConfig()
	c.Name, c.Dir = "external", t.TempDir()
	noPeers, _ := url.Parse("http://localhost:0")
	c.ListenPeerUrls, c.AdvertisePeerUrls, c.InitialCluster = nil, []url.URL{*noPeers}, "external=http://localhost:0"
	listen, _ := url.Parse("https://127.0.0.1:0")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*listen}, []url.URL{*listen}
	c.EnableGRPCGateway = false
	c.ClientTLSInfo = transport.TLSInfo{CertFile: certFile, KeyFile: keyFile, TrustedCAFile: certFile, ClientCertAuth: true}
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	<-server.Server.ReadyNotify()
	endpoints := []string{"https://" + server.Clients[0].Addr().String()}

	mine, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	d, err := etcd.Open(t.Context(), etcd.Options{Endpoints: endpoints, CallTimeout: eventually, TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{mine}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Put(t.Context(), directory.Entry{Key: "a"}); err != nil {
		t.Error(err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}

	d, err = etcd.Open(t.Context(), etcd.Options{Endpoints: endpoints, CallTimeout: eventually, TLS: &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{mine}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), "a"); !errors.Is(err, directory.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a stranger's certificate: %v", err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

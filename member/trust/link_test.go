package trust

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestAgentsKnowEachOtherByName(t *testing.T) {
	ca := newAuthority(t)
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a"}), Name: "a"})
	b := opened(t, Options{Files: issued(t, ca, Request{Name: "b:1@rack+x=~_.-"})})
	m := meet(t, a.Server(), b.Client("a"))
	if m.serverErr != nil || m.clientErr != nil || m.guest != b.Name() {
		t.Errorf("guest %q, server: %v, client: %v", m.guest, m.serverErr, m.clientErr)
	}
	if host, err := PeerName(m.client.ConnectionState()); host != "a" || err != nil {
		t.Errorf("the client sees %q, %v", host, err)
	}
	for side, conn := range map[string]*tls.Conn{"server": m.server, "client": m.client} {
		if state := conn.ConnectionState(); state.Version != tls.VersionTLS13 || state.DidResume {
			t.Errorf("%s: version %x, resumed: %v", side, state.Version, state.DidResume)
		}
	}
}

// Each of these is refused by the side that looks at it, and for its own
// reason, whether it dials or listens.
func TestWhoIsRefused(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	honest := opened(t, Options{Files: issued(t, ca, Request{Name: "honest"})})
	usage := func(u ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = u }
	}
	uris := func(all ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = nil
			for _, text := range all {
				u, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		}
	}
	for name, c := range map[string]struct {
		files            Files
		asServer, asPeer error // what the honest client and the honest server say
		says             string
	}{
		"other CA":      {issued(t, other, Request{Name: "x"}), ErrAuthority, ErrAuthority, "Meridian cell CA"},
		"expired":       {issued(t, ca, Request{Name: "x", Now: time.Now().Add(-300 * day), Days: 10}), ErrExpired, ErrExpired, "x ended at"},
		"not yet valid": {issued(t, ca, Request{Name: "y", Now: time.Now().Add(10 * day)}), ErrNotYetValid, ErrNotYetValid, "y begins at"},
		"server only":   {signed(t, ca, "x", usage(x509.ExtKeyUsageServerAuth)), nil, ErrUsage, "as client"},
		"client only":   {signed(t, ca, "x", usage(x509.ExtKeyUsageClientAuth)), ErrUsage, nil, "as server"},
		"code signing":  {signed(t, ca, "x", usage(x509.ExtKeyUsageCodeSigning)), ErrUsage, ErrUsage, "cannot be used"},
		"no name":       {signed(t, ca, "x", uris()), ErrName, ErrName, "names no agent"},
		"DNS name only": {signed(t, ca, "x", func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"x"} }), ErrName, ErrName, "names no agent"},
		"two names":     {signed(t, ca, "x", uris("meridian://agent/x", "meridian://agent/y")), ErrName, ErrName, "both x and y"},
		"another noun":  {signed(t, ca, "x", uris("meridian://engine/x")), ErrName, ErrName, "is not meridian://agent/NAME"},
		"escaped name":  {signed(t, ca, "x", uris("meridian://agent/%78")), ErrName, ErrName, "is not meridian://agent/NAME"},
		"name in path":  {signed(t, ca, "x", uris("meridian://agent/x/y")), ErrName, ErrName, "is not meridian://agent/NAME"},
		"with a query":  {signed(t, ca, "x", uris("meridian://agent/x?y")), ErrName, ErrName, "is not meridian://agent/NAME"},
		"by an agent":   {signedByAnAgent(t, ca, "x"), ErrAuthority, ErrAuthority, "CN=usurper"},
	} {
		t.Run(name, func(t *testing.T) {
			expected := "x"
			if name == "not yet valid" {
				expected = "y"
			}
			m := meet(t, bare(t, c.files), honest.Client(expected))
			judged(t, "an honest client", m.clientErr, c.asServer, c.says)
			m = meet(t, honest.Server(), bare(t, c.files))
			judged(t, "an honest server", m.serverErr, c.asPeer, c.says)
			if c.asPeer != nil && !errors.Is(m.clientErr, ErrRefused) {
				t.Errorf("the client hears %v", m.clientErr)
			}
		})
	}
}

func judged(t *testing.T, who string, got, want error, says string) {
	t.Helper()
	switch {
	case want == nil && got != nil:
		t.Errorf("%s refuses: %v", who, got)
	case !errors.Is(got, want):
		t.Errorf("%s says %v, want %v", who, got, want)
	case want != nil && !strings.Contains(got.Error(), says):
		t.Errorf("%s says %v, without %q", who, got, says)
	}
}

// signedByAnAgent is the pair of an agent whose certificate another agent has
// signed as if it were a CA, and that brings the other's certificate along.
func signedByAnAgent(t *testing.T, ca *Authority, name string) Files {
	t.Helper()
	files := issued(t, ca, Request{Name: "usurper"})
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	usurper := &Authority{dir: ca.dir, cert: pair.Leaf, key: pair.PrivateKey.(crypto.Signer)}
	made := signed(t, usurper, name, func(*x509.Certificate) {})
	write(t, made.Cert, append(read(t, made.Cert), read(t, files.Cert)...))
	return made
}

func TestOtherAgentAnswers(t *testing.T) {
	ca := newAuthority(t)
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a"})})
	b := opened(t, Options{Files: issued(t, ca, Request{Name: "b", Hosts: []string{"127.0.0.1"}})})
	m := meet(t, b.Server(), a.Client("c"))
	judged(t, "a", m.clientErr, ErrName, "agent b answers where c is expected")
	if m.serverErr == nil {
		t.Error("the server went on with a client that had left")
	}
	m = meet(t, b.Server(), a.Client(""))
	judged(t, "a, to whom all are welcome", m.clientErr, nil, "")
	m = meet(t, bare(t, issued(t, newAuthority(t), Request{Name: "x"})), a.Client(""))
	judged(t, "a, to whom all are welcome", m.clientErr, ErrAuthority, "issuer")
	m = meet(t, b.Server(), a.Client("127.0.0.1"))
	judged(t, "a", m.clientErr, ErrName, "where 127.0.0.1 is expected")
}

func TestOnlyTLS13(t *testing.T) {
	ca := newAuthority(t)
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a"})})
	old := bare(t, issued(t, ca, Request{Name: "b"}))
	old.MaxVersion = tls.VersionTLS12
	if m := meet(t, a.Server(), old); m.serverErr == nil || !strings.Contains(m.serverErr.Error(), "unsupported versions") {
		t.Errorf("a server takes TLS 1.2: %v", m.serverErr)
	}
	if m := meet(t, old, a.Client("b")); m.clientErr == nil || !strings.Contains(m.clientErr.Error(), "protocol version") {
		t.Errorf("a client takes TLS 1.2: %v", m.clientErr)
	}
}

func TestOtherProtocols(t *testing.T) {
	ca := newAuthority(t)
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a"})})
	b := bare(t, issued(t, ca, Request{Name: "b"}))
	b.NextProtos = nil
	judged(t, "a server", meet(t, a.Server(), b).serverErr, ErrProtocol, `"" instead of meridian/1`)
	judged(t, "a client", meet(t, b, a.Client("b")).clientErr, ErrProtocol, `"" instead of meridian/1`)
	b.NextProtos = []string{"h2"}
	judged(t, "a guest with HTTP", meet(t, a.Server(), b).clientErr, ErrRefused, "no application protocol")
}

func TestNoCertificate(t *testing.T) {
	ca := newAuthority(t)
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a"})})
	unproven := &tls.Config{NextProtos: []string{Protocol}, InsecureSkipVerify: true}
	m := meet(t, a.Server(), unproven)
	if m.serverErr == nil || !strings.Contains(m.serverErr.Error(), "didn't provide a certificate") {
		t.Errorf("the server says %v", m.serverErr)
	}
	judged(t, "no certificate", m.clientErr, ErrRefused, "certificate required")
}

func TestPlaintextPeer(t *testing.T) {
	ca := newAuthority(t)
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a"})})
	for side, dress := range map[string]func(net.Conn) *tls.Conn{
		"server": func(c net.Conn) *tls.Conn { return tls.Server(c, a.Server()) },
		"client": func(c net.Conn) *tls.Conn { return tls.Client(c, a.Client("b")) },
	} {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		go func() { _, _ = far.Write([]byte("hello, I speak plainly")) }()
		_, err := Handshake(t.Context(), dress(near))
		judged(t, side, err, ErrProtocol, "has it been given certificates?")
		near.Close()
		far.Close()
	}
}

func TestPeerNameNeedsAHandshake(t *testing.T) {
	if name, err := PeerName(tls.ConnectionState{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%q, %v", name, err)
	}
	if name, err := PeerName(tls.ConnectionState{HandshakeComplete: true}); !errors.Is(err, ErrName) {
		t.Errorf("%q, %v", name, err)
	}
}

func TestExplainLeavesTheRest(t *testing.T) {
	if got := Explain(io.EOF); got != io.EOF {
		t.Errorf("%v", got)
	}
	if Explain(nil) != nil {
		t.Error("nothing is something")
	}
}

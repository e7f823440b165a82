package trust

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestParseCertificates(t *testing.T) {
	ca := newAuthority(t)
	files := issued(t, ca, Request{Name: "a"})
	leaf, root, key := read(t, files.Cert), pemOf(ca), read(t, files.Key)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		data  []byte
		count int
		says  string
	}{
		"one":             {leaf, 1, ""},
		"chain":           {join(leaf, root), 2, ""},
		"with text":       {join([]byte("Certificate:\n  Data:\n"), leaf, []byte("\nthe CA:\n"), root, []byte("end\n")), 2, ""},
		"nothing":         {nil, 0, "no PEM certificate"},
		"DER":             {ca.cert.Raw, 0, "no PEM certificate"},
		"key":             {key, 0, "private key"},
		"key at the end":  {join(leaf, key), 0, "private key"},
		"request":         {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"}), 0, "CERTIFICATE REQUEST"},
		"no certificate":  {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), 0, "certificate 1:"},
		"cut off":         {leaf[:len(leaf)-30], 0, "no PEM certificate"},
		"second cut off":  {join(leaf, root[:len(root)-30]), 0, "certificate 1 is damaged"},
		"too many of one": {bytes.Repeat(leaf, maxCertificates+1), 0, "more than"},
	} {
		found, err := parseCertificates(c.data)
		switch {
		case c.says == "" && (err != nil || len(found) != c.count):
			t.Errorf("%s: %d certificates, %v", name, len(found), err)
		case c.says != "" && (!errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// What an existing PKI must bring, as docs/security-setup.md says.
func TestCheck(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	now := time.Now()
	read := func(f Files) []*x509.Certificate {
		chain, err := ReadCertificates(f.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return chain
	}
	serverOnly := read(signed(t, ca, "a", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }))
	anyUse := read(signed(t, ca, "a", func(c *x509.Certificate) { c.ExtKeyUsage = nil }))
	good := read(issued(t, ca, Request{Name: "good"}))
	for name, c := range map[string]struct {
		chain, roots []*x509.Certificate
		now          time.Time
		want         error
	}{
		"good":               {good, []*x509.Certificate{ca.cert}, now, nil},
		"one of two roots":   {good, []*x509.Certificate{other.cert, ca.cert}, now, nil},
		"without roots":      {good, nil, now, nil},
		"all usages":         {anyUse, nil, now, nil},
		"other root":         {good, []*x509.Certificate{other.cert}, now, ErrAuthority},
		"server only":        {serverOnly, nil, now, ErrUsage},
		"later":              {good, nil, now.Add(400 * day), ErrExpired},
		"when the CA is old": {good, []*x509.Certificate{ca.cert}, now.Add(4000 * day), ErrExpired},
		"earlier":            {good, nil, now.Add(-day), ErrNotYetValid},
		"a CA":               {[]*x509.Certificate{ca.cert}, nil, now, ErrName},
		"nothing":            {nil, nil, now, ErrName},
	} {
		judged(t, name, Check(c.chain, c.roots, c.now), c.want, "")
	}
}

// An existing PKI: a root, and an intermediate CA that comes along with each
// certificate that it has signed.
func TestIntermediate(t *testing.T) {
	authority := func(by *Authority, name string) *Authority {
		made, err := newPair(&x509.Certificate{
			Subject:   pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, by)
		if err != nil {
			t.Fatal(err)
		}
		own, err := made.parse()
		if err != nil {
			t.Fatal(err)
		}
		a := &Authority{dir: t.TempDir(), cert: own.Leaf, key: own.PrivateKey.(crypto.Signer)}
		write(t, FilesIn(a.dir, "").CA, made.cert)
		return a
	}
	root := authority(nil, "root")
	middle := authority(root, "middle")
	var sources []*Source
	for _, name := range []string{"a", "b"} {
		files := signed(t, middle, name, func(*x509.Certificate) {})
		files.CA = FilesIn(root.dir, "").CA
		_, err := Open(Options{Files: files})
		judged(t, "without the intermediate", err, ErrAuthority, "CN=middle")
		write(t, files.Cert, append(read(t, files.Cert), pemOf(middle)...))
		sources = append(sources, opened(t, Options{Files: files}))
	}
	if m := meet(t, sources[0].Server(), sources[1].Client("a")); m.serverErr != nil || m.clientErr != nil || m.guest != "b" {
		t.Errorf("guest %q, server: %v, client: %v", m.guest, m.serverErr, m.clientErr)
	}
}

func FuzzCertificates(f *testing.F) {
	ca := newAuthority(f)
	leaf, err := ca.Issue(Request{Name: "a", Hosts: []string{"h", "::1"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pemOf(ca))
	f.Add(append(read(f, leaf.Cert), pemOf(ca)...))
	f.Add(read(f, leaf.Key))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parseCertificates(data)
		if (err == nil) != (len(found) > 0) || err != nil && !errors.Is(err, ErrFile) {
			t.Fatalf("%d certificates, %v", len(found), err)
		}
		for _, c := range found {
			Describe(c)
		}
		_ = Check(found, nil, time.Unix(1e9, 0))
		_, _ = contents{ca: data, pair: pair{cert: data, key: data}}.identity(time.Unix(1e9, 0))
	})
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"meridian://agent/a", "meridian://agent/a%62", "meridian://agent/a#b", "meridian://u@agent/a", "meridian:agent/a", "http://agent/a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		uri, err := url.Parse(text)
		if err != nil {
			return
		}
		name, err := nameIn(&x509.Certificate{URIs: []*url.URL{uri}})
		if err != nil {
			if !errors.Is(err, ErrName) || name != "" {
				t.Fatalf("%q, %v", name, err)
			}
			return
		}
		if CheckName(name) != nil || nameURI(name).String() != strings.TrimSuffix(uri.String(), "#") {
			t.Fatalf("%q names %q", text, name)
		}
	})
}

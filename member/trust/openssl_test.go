package trust

import (
	"crypto/tls"
	"net"
	"os/exec"
	"strings"
	"testing"

	"meridian/internal/require"
)

// openssl runs the program and returns what it printed.
func openssl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), require.Program(t, "openssl"), args...).CombinedOutput()
	return string(out), err
}

func TestOpenSSLVerifiesWhatWasIssued(t *testing.T) {
	ca := newAuthority(t)
	files := issued(t, ca, Request{Name: "prefill-0", Hosts: []string{"10.0.0.1", "p0.example"}})
	for _, args := range [][]string{
		{"-purpose", "sslserver"},
		{"-purpose", "sslclient"},
		{"-verify_ip", "10.0.0.1"},
		{"-verify_hostname", "p0.example"},
	} {
		out, err := openssl(t, append(append([]string{"verify", "-x509_strict", "-CAfile", files.CA}, args...), files.Cert)...)
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	for name, args := range map[string][]string{
		"other CA":   {"-CAfile", FilesIn(newAuthority(t).dir, "").CA},
		"other host": {"-CAfile", files.CA, "-verify_hostname", "p1.example"},
	} {
		if out, err := openssl(t, append(append([]string{"verify"}, args...), files.Cert)...); err == nil {
			t.Errorf("%s passes: %s", name, out)
		}
	}
	out, err := openssl(t, "x509", "-in", files.Cert, "-noout", "-ext", "subjectAltName,extendedKeyUsage,basicConstraints")
	for _, want := range []string{"URI:meridian://agent/prefill-0", "IP Address:10.0.0.1", "DNS:p0.example", "TLS Web Server Authentication, TLS Web Client Authentication", "CA:FALSE"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("no %q in %v: %s", want, err, out)
		}
	}
	if out, err := openssl(t, "pkey", "-in", files.Key, "-noout", "-check"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Another library on the other side: it is welcomed by name, and TLS 1.2 is not.
func TestOpenSSLShakesHands(t *testing.T) {
	require.Program(t, "openssl")
	ca := newAuthority(t)
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a", Hosts: []string{"127.0.0.1"}})})
	files := issued(t, ca, Request{Name: "b"})
	for version, welcome := range map[string]bool{"-tls1_3": true, "-tls1_2": false} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		type guest struct {
			name string
			err  error
		}
		came := make(chan guest, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				came <- guest{err: err}
				return
			}
			secured := tls.Server(conn, a.Server())
			defer secured.Close()
			name, err := Handshake(t.Context(), secured)
			came <- guest{name, err}
		}()
		out, err := openssl(t, "s_client", version, "-connect", listener.Addr().String(), "-brief", "-alpn", Protocol,
			"-verify_return_error", "-verify_ip", "127.0.0.1", "-CAfile", files.CA, "-cert", files.Cert, "-key", files.Key)
		listener.Close()
		g := <-came
		if good := err == nil && g.err == nil && g.name == "b"; good != welcome {
			t.Errorf("%s: client %v, server %v, guest %q: %s", version, err, g.err, g.name, out)
		}
	}
}

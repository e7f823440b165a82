package trust

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

const day = 24 * time.Hour

// clock is a time that tests move. It starts at the real one, because the
// certificates of peers are judged by that.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	// A CA that was made long ago can sign what began in the past.
	a, err := CreateAuthority(AuthorityOptions{Dir: t.TempDir(), Now: time.Now().Add(-400 * day)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issued(t testing.TB, a *Authority, r Request) Files {
	t.Helper()
	files, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func opened(t testing.TB, o Options) *Source {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bare is a peer that uses a pair as it is, whatever it is worth.
func bare(t testing.TB, files Files) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, NextProtos: []string{Protocol}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert,
		// Without this the library would not send what the server does not ask for.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}
}

// signed writes a pair whose certificate is like an agent's but for one thing.
func signed(t testing.TB, by *Authority, name string, change func(*x509.Certificate)) Files {
	t.Helper()
	template := &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	template.URIs = append(template.URIs, nameURI(name))
	change(template)
	made, err := newPair(template, by)
	if err != nil {
		t.Fatal(err)
	}
	files := FilesIn(t.TempDir(), name)
	files.CA = FilesIn(by.dir, name).CA
	if err := made.write(files, createFile); err != nil {
		t.Fatal(err)
	}
	return files
}

// met is what came of a meeting of two sides.
type met struct {
	server, client       *tls.Conn
	guest                string // as the server sees the client
	serverErr, clientErr error
}

// meet connects two sides and has them shake hands and say one byte each, so
// that the client learns what the server thinks of it.
func meet(t testing.TB, server, client *tls.Config) met {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var m met
	var wait sync.WaitGroup
	wait.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			m.serverErr = err
			return
		}
		m.server = tls.Server(conn, server)
		if m.guest, m.serverErr = Handshake(ctx, m.server); m.serverErr == nil {
			m.serverErr = exchange(m.server)
			return
		}
		// Closing at once would take back what the client has not read yet.
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	})
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	m.client = tls.Client(conn, client)
	if _, m.clientErr = Handshake(ctx, m.client); m.clientErr == nil {
		m.clientErr = Explain(exchange(m.client))
	}
	if m.clientErr != nil {
		conn.Close()
	}
	wait.Wait()
	t.Cleanup(func() { conn.Close(); m.server.Close() })
	return m
}

// exchange says a byte and hears one.
func exchange(conn *tls.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, err := conn.Write([]byte{1})
	if _, readErr := conn.Read(make([]byte, 1)); readErr != nil {
		return readErr // it tells more than a write that failed
	}
	return err
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func chmod(t testing.TB, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func mkfifo(t testing.TB, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

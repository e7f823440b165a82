package trust

import (
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// listener remembers what a Source reports.
type listener struct {
	mu     sync.Mutex
	events []error
}

func (l *listener) hear(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, err)
}

// take returns what was reported since the last call.
func (l *listener) take() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.events = nil }()
	return l.events
}

// reloading is a server whose clock and files a test changes, and a client.
type reloading struct {
	t      *testing.T
	ca     *Authority
	files  Files
	clock  *clock
	heard  listener
	server *Source
	client *Source
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	r := &reloading{t: t, ca: newAuthority(t), clock: newClock()}
	r.files = issued(t, r.ca, Request{Name: "a"})
	r.server = opened(t, Options{Files: r.files, Now: r.clock.Now, OnReload: r.heard.hear})
	r.client = opened(t, Options{Files: issued(t, r.ca, Request{Name: "b"})})
	return r
}

// serial says which certificate the server shows now.
func (r *reloading) serial() string {
	r.t.Helper()
	m := meet(r.t, r.server.Server(), r.client.Client("a"))
	if m.serverErr != nil || m.clientErr != nil {
		r.t.Fatalf("server: %v, client: %v", m.serverErr, m.clientErr)
	}
	return m.client.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func (r *reloading) renew() { issued(r.t, r.ca, Request{Name: "a", Renew: true}) }

func TestReload(t *testing.T) {
	r := newReloading(t)
	first := meet(t, r.server.Server(), r.client.Client("a"))
	before := r.serial()
	r.renew()
	r.clock.add(rereadAfter - 1)
	if r.serial() != before {
		t.Error("the files were read again at once")
	}
	r.clock.add(1)
	if r.serial() == before {
		t.Error("the new certificate is not used")
	}
	if got := r.heard.take(); len(got) != 1 || got[0] != nil {
		t.Errorf("reported: %v", got)
	}
	// What was open stays open.
	done := make(chan error, 1)
	go func() { done <- exchange(first.server) }()
	if err := errors.Join(exchange(first.client), <-done); err != nil {
		t.Error(err)
	}
	r.clock.add(day)
	r.serial()
	if got := r.heard.take(); len(got) != 0 {
		t.Errorf("nothing has changed, reported: %v", got)
	}
}

func TestBrokenReload(t *testing.T) {
	elsewhere := newAuthority(t)
	for name, c := range map[string]struct {
		spoil func(*reloading)
		want  error
		says  string
	}{
		"cut off":        {func(r *reloading) { write(t, r.files.Cert, read(t, r.files.Cert)[:200]) }, ErrFile, "no PEM certificate"},
		"empty key":      {func(r *reloading) { write(t, r.files.Key, nil) }, ErrPair, "PEM data"},
		"encrypted key":  {func(r *reloading) { write(t, r.files.Key, []byte(encryptedKey)) }, ErrPair, "encrypted"},
		"other key":      {func(r *reloading) { write(t, r.files.Key, read(t, FilesIn(r.ca.dir, "b").Key)) }, ErrPair, "does not match"},
		"exposed key":    {func(r *reloading) { chmod(t, r.files.Key, 0o644) }, ErrExposed, "has mode 0644 where 0640 is due"},
		"writable CA":    {func(r *reloading) { chmod(t, r.files.CA, 0o666) }, ErrExposed, "has mode 0666"},
		"missing":        {func(r *reloading) { remove(t, r.files.Cert) }, fs.ErrNotExist, "agent-a.crt"},
		"CA of others":   {func(r *reloading) { write(t, r.files.CA, pemOf(elsewhere)) }, ErrAuthority, "issuer"},
		"key for a CA":   {func(r *reloading) { write(t, r.files.CA, read(t, r.files.Key)) }, ErrFile, "the CA file: the file cannot be used: there is a private key"},
		"another agent":  {func(r *reloading) { r.adopt(FilesIn(r.ca.dir, "b")) }, ErrName, "it is of agent b, this is a"},
		"already ended":  {func(r *reloading) { r.adopt(old(r.t, r.ca)) }, ErrExpired, "old ended at"},
		"a pipe":         {func(r *reloading) { remove(t, r.files.Key); mkfifo(t, r.files.Key) }, ErrFile, "not a regular file"},
		"too much of it": {func(r *reloading) { write(t, r.files.CA, make([]byte, maxFileBytes+1)) }, ErrFile, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReloading(t)
			before := r.serial()
			c.spoil(r)
			for range 3 {
				r.clock.add(rereadAfter)
				if r.serial() != before {
					t.Fatal("another certificate is used")
				}
			}
			got := r.heard.take()
			if len(got) != 1 || !errors.Is(got[0], c.want) || !strings.Contains(got[0].Error(), c.says) {
				t.Fatalf("reported: %v, want once %v with %q", got, c.want, c.says)
			}
			// A Source that starts now says the same.
			if _, err := Open(Options{Files: r.files, Name: "a"}); !errors.Is(err, c.want) {
				t.Errorf("Open: %v", err)
			}
			remove(t, r.files.Key)
			chmod(t, r.files.CA, 0o644)
			write(t, r.files.CA, pemOf(r.ca))
			if _, err := os.Stat(r.files.Cert); err == nil {
				remove(t, r.files.Cert)
			}
			r.renew()
			r.clock.add(rereadAfter)
			if r.serial() == before {
				t.Error("mended files are not used")
			}
			if got := r.heard.take(); len(got) != 1 || got[0] != nil {
				t.Errorf("reported: %v", got)
			}
		})
	}
}

const encryptedKey = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"

// adopt puts other files in the place of the server's.
func (r *reloading) adopt(f Files) {
	write(r.t, r.files.Cert, read(r.t, f.Cert))
	write(r.t, r.files.Key, read(r.t, f.Key))
}

func old(t testing.TB, ca *Authority) Files {
	return issued(t, ca, Request{Name: "old", Now: time.Now().Add(-300 * day), Days: 10})
}

func pemOf(ca *Authority) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// A file that vanishes, comes back and vanishes again is reported twice.
func TestVanishingIsReportedEachTime(t *testing.T) {
	r := newReloading(t)
	certificate := read(t, r.files.Cert)
	for range 2 {
		remove(t, r.files.Cert)
		r.clock.add(rereadAfter)
		r.serial()
		if got := r.heard.take(); len(got) != 1 || !errors.Is(got[0], fs.ErrNotExist) {
			t.Fatalf("reported: %v", got)
		}
		write(t, r.files.Cert, certificate)
		r.clock.add(rereadAfter)
		r.serial()
		if got := r.heard.take(); len(got) != 1 || got[0] != nil {
			t.Fatalf("reported: %v", got)
		}
	}
}

// The cell moves to another CA without a stop: first all trust both, then the
// certificates change one by one, then the old CA goes.
func TestCAChangesWhileAgentsRun(t *testing.T) {
	was, is := newAuthority(t), newAuthority(t)
	time := newClock()
	dir := t.TempDir()
	sources := make(map[string]*Source)
	install := func(by *Authority, name string) {
		from, to := issued(t, by, Request{Name: name}), FilesIn(dir, name)
		write(t, to.Cert, read(t, from.Cert))
		write(t, to.Key, read(t, from.Key))
	}
	trustIn := func(all ...*Authority) {
		var bundle []byte
		for _, ca := range all {
			bundle = append(bundle, pemOf(ca)...)
		}
		write(t, FilesIn(dir, "").CA, bundle)
	}
	everybodyTalks := func() {
		t.Helper()
		time.add(rereadAfter)
		for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
			// Each side's first handshake takes up its files.
			meet(t, sources[pair[0]].Server(), sources[pair[1]].Client(pair[0]))
			if m := meet(t, sources[pair[0]].Server(), sources[pair[1]].Client(pair[0])); m.serverErr != nil || m.clientErr != nil {
				t.Fatalf("%s to %s: server: %v, client: %v", pair[1], pair[0], m.serverErr, m.clientErr)
			}
		}
	}
	trustIn(was)
	for _, name := range []string{"a", "b"} {
		install(was, name)
		sources[name] = opened(t, Options{Files: FilesIn(dir, name), Now: time.Now, OnReload: func(err error) {
			if err != nil {
				t.Error(err)
			}
		}})
	}
	everybodyTalks()
	trustIn(was, is)
	everybodyTalks()
	install(is, "a")
	everybodyTalks()
	install(is, "b")
	everybodyTalks()
	trustIn(is)
	everybodyTalks()
	stale := opened(t, Options{Files: FilesIn(was.dir, "a")})
	m := meet(t, sources["b"].Server(), stale.Client("b"))
	judged(t, "b", m.serverErr, ErrRefused, "bad certificate") // it is the client that looks first
	judged(t, "an agent of the old CA", m.clientErr, ErrAuthority, "issuer")
}

// Many handshakes at once, while files change under them: none fails, and all
// see a whole pair.
func TestReloadUnderLoad(t *testing.T) {
	r := newReloading(t)
	var stop atomic.Bool
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for !stop.Load() {
				r.clock.add(rereadAfter)
				if m := meet(t, r.server.Server(), r.client.Client("a")); m.serverErr != nil || m.clientErr != nil {
					t.Errorf("server: %v, client: %v", m.serverErr, m.clientErr)
					return
				}
			}
		})
	}
	for range 30 {
		r.renew()
	}
	stop.Store(true)
	wait.Wait()
}

func TestOwnCertificateEnds(t *testing.T) {
	ca, time := newAuthority(t), newClock()
	a := opened(t, Options{Files: issued(t, ca, Request{Name: "a", Days: 1}), Now: time.Now})
	b := opened(t, Options{Files: issued(t, ca, Request{Name: "b"})})
	time.add(2 * day)
	judged(t, "a as server", meet(t, a.Server(), b.Client("a")).serverErr, ErrExpired, "a ended at")
	judged(t, "a as client", meet(t, b.Server(), a.Client("b")).clientErr, ErrExpired, "cert issue")
	issued(t, ca, Request{Name: "a", Renew: true})
	time.add(rereadAfter)
	judged(t, "a, renewed", meet(t, a.Server(), b.Client("a")).serverErr, nil, "")
}

func TestOpenChecksTheName(t *testing.T) {
	ca := newAuthority(t)
	files := issued(t, ca, Request{Name: "a"})
	_, err := Open(Options{Files: files, Name: "b"})
	judged(t, "Open", err, ErrName, "it is of agent a, this is b")
	if s := opened(t, Options{Files: files}); s.Name() != "a" || time.Until(s.NotAfter()) < (IssuedDays-1)*day {
		t.Errorf("%s until %v", s.Name(), s.NotAfter())
	}
}

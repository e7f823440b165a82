package node

import (
	"bytes"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/member/directory/etcd/embedded"
	"meridian/member/trust"
	"meridian/move/fabric"
)

// authorityIn opens the CA of a state directory, or makes it.
func authorityIn(t *testing.T, stateDir string) *trust.Authority {
	t.Helper()
	dir := trust.Dir(stateDir)
	ca, err := trust.OpenAuthority(dir)
	if errors.Is(err, os.ErrNotExist) {
		ca, err = trust.CreateAuthority(trust.AuthorityOptions{Dir: dir})
	}
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issueIn(t *testing.T, stateDir string, r trust.Request) trust.Files {
	t.Helper()
	files, err := authorityIn(t, stateDir).Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A certificate that is there is used or is an error; only where there is none
// does an agent go without.
func TestWhatAnAgentProvesItselfWith(t *testing.T) {
	const withTLS, withKey = "TLS, certificate of a until ", "cell key"
	for name, c := range map[string]struct {
		mode  trust.TLSMode
		spoil func(*testing.T, *AgentOptions)
		says  string // of the proof, or of the error
		err   error
	}{
		"certificate, auto":        {mode: trust.TLSAuto, says: withTLS},
		"certificate, unsaid":      {says: withTLS},
		"certificate, required":    {mode: trust.TLSRequired, says: withTLS},
		"certificate, off":         {mode: trust.TLSOff, says: withKey},
		"no certificate, auto":     {spoil: rename("b"), says: withKey},
		"no certificate, off":      {mode: trust.TLSOff, spoil: rename("b"), says: withKey},
		"no certificate, required": {mode: trust.TLSRequired, spoil: rename("b"), err: trust.ErrNoCertificate, says: "`meridian cert issue b`"},
		"no such mode":             {mode: "on", says: `no TLS mode "on"`, err: errAny},
		"key lost":                 {spoil: remove("agent-a.key"), err: os.ErrNotExist},
		"certificate lost":         {spoil: remove("agent-a.crt"), err: os.ErrNotExist},
		"CA lost":                  {spoil: remove("ca.crt"), err: os.ErrNotExist},
		"key lost, off":            {mode: trust.TLSOff, spoil: remove("agent-a.key"), says: withKey},
		"key that others can read": {spoil: func(t *testing.T, o *AgentOptions) {
			if err := os.Chmod(o.TLS.FilesOf(o.StateDir, "a").Key, 0o644); err != nil {
				t.Fatal(err)
			}
		}, err: trust.ErrExposed},
		"expired": {spoil: func(t *testing.T, o *AgentOptions) {
			issueIn(t, o.StateDir, trust.Request{Name: "a", Renew: true, Days: 1, Now: time.Now().AddDate(0, 0, -2)})
		}, err: errAny},
		"another agent's, by path": {spoil: func(_ *testing.T, o *AgentOptions) {
			o.TLS.Files = o.TLS.FilesOf(o.StateDir, "a")
			o.Name = "b"
		}, err: trust.ErrName},
		"its own, by path": {spoil: func(t *testing.T, o *AgentOptions) {
			o.TLS.Files = o.TLS.FilesOf(o.StateDir, "a")
			o.StateDir = t.TempDir()
		}, says: withTLS},
		"paths to nothing": {spoil: func(_ *testing.T, o *AgentOptions) {
			o.TLS.Files.Cert, o.TLS.Files.Key = "/nowhere/crt", "/nowhere/key"
		}, err: os.ErrNotExist},
		"cell key that others can read": {spoil: func(t *testing.T, o *AgentOptions) {
			if err := os.WriteFile(filepath.Join(o.StateDir, trust.CellKeyFile), make([]byte, 32), 0o644); err != nil {
				t.Fatal(err)
			}
		}, err: trust.ErrExposed},
	} {
		t.Run(name, func(t *testing.T) {
			o := AgentOptions{Name: "a", StateDir: t.TempDir(), TLS: trust.TLS{Mode: c.mode}, Logger: slog.New(slog.DiscardHandler)}
			issueIn(t, o.StateDir, trust.Request{Name: "a"})
			if c.spoil != nil {
				c.spoil(t, &o)
			}
			p, err := trust.OpenIdentity(o.TLS, o.StateDir, o.Name, o.Logger)
			switch {
			case c.err == nil && (err != nil || !strings.HasPrefix(p.String(), c.says)):
				t.Errorf("%v, %v", p, err)
			case c.err != nil && (err == nil || c.err != errAny && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, want %v", err, c.err)
			}
		})
	}
}

// errAny stands for an error that only its text tells.
var errAny = errors.New("any")

// addressOf is where an agent listens on loopback, as its metadata tells peers.
func addressOf(n *Agent) string {
	return string(regexp.MustCompile(`127\.0\.0\.1:\d+`).Find(n.MetadataBlob()))
}

func rename(name string) func(*testing.T, *AgentOptions) {
	return func(_ *testing.T, o *AgentOptions) { o.Name = name }
}

func remove(file string) func(*testing.T, *AgentOptions) {
	return func(t *testing.T, o *AgentOptions) {
		if err := os.Remove(filepath.Join(trust.Dir(o.StateDir), file)); err != nil {
			t.Fatal(err)
		}
	}
}

// Agents of two state directories are strangers, on every fabric, until they
// share what proves that they are not.
func TestStrangersAreRefused(t *testing.T) {
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			far := join(t, way(t, AgentOptions{Name: "far", StateDir: t.TempDir()}))
			stranger := join(t, way(t, AgentOptions{Name: "near", StateDir: t.TempDir()}))
			grant := far.openTo(t, "near")
			before := far.Metrics().Audit.Refused
			err := stranger.ask(t, far, access{fabric.Read, 0, 4096, grant})
			if !errors.Is(err, fabric.ErrUnproven) {
				t.Errorf("a stranger: %v", err)
			}
			if name == "tcp with TLS" && !errors.Is(err, trust.ErrAuthority) {
				t.Errorf("the CA of another cell: %v", err)
			}
			until.True(t, "a counted refusal", func() bool { return far.Metrics().Audit.Refused > before })
		})
	}
}

// An agent that trusts a CA is not trusted for it.
func TestTrustIsNotMutual(t *testing.T) {
	there, here := t.TempDir(), t.TempDir()
	far := join(t, ways()["tcp with TLS"](t, AgentOptions{Name: "far", StateDir: there}))
	files := issueIn(t, here, trust.Request{Name: "near"})
	foreign, err := os.ReadFile(filepath.Join(trust.Dir(there), "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(both, append(own, foreign...), 0o644); err != nil {
		t.Fatal(err)
	}
	near := join(t, AgentOptions{Name: "near", StateDir: here, Fabrics: []string{"tcp"}, TLS: trust.TLS{Mode: trust.TLSRequired, Files: trust.Files{CA: both}}})
	if err := near.ask(t, far, access{fabric.Read, 0, 4096, far.openTo(t, "near")}); err == nil {
		t.Error("an agent of another CA got in")
	}
	until.True(t, "a counted refusal", func() bool { return far.Metrics().Audit.Refused > 0 })
}

// Connections that do not say who they are are few, and have little time.
func TestStrangersAreFewAndBrief(t *testing.T) {
	silent := func(n *Agent) net.Conn {
		conn, err := net.Dial("tcp", addressOf(n))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	closed := func(conn net.Conn) bool {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := conn.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	patient := AgentOptions{Name: "a", StateDir: t.TempDir(), Fabrics: []string{"tcp"}, Strangers: 1, Handshake: time.Hour}
	n := open(t, patient)
	first := silent(n)
	silent(n)
	if !closed(first) {
		t.Error("the first did not make room for the second")
	}
	brief := AgentOptions{Name: "b", StateDir: t.TempDir(), Fabrics: []string{"tcp"}, Strangers: 1, Handshake: time.Second}
	began := time.Now()
	if alone := silent(open(t, brief)); !closed(alone) || time.Since(began) < brief.Handshake {
		t.Errorf("a silent one was let stay for %v, not %v", time.Since(began), brief.Handshake)
	}
}

// Where there is no TLS a network may be allowed, but no peer gets in that does
// not know the cell's key.
func TestInsecureStillAsksForTheKey(t *testing.T) {
	var log bytes.Buffer
	o := AgentOptions{Fabrics: []string{"tcp"}, Listen: "0.0.0.0:0", Insecure: true}
	dir := t.TempDir()
	o.Name, o.StateDir, o.Logger = "far", dir, slog.New(slog.NewTextHandler(&log, nil))
	far := join(t, o)
	if !strings.Contains(log.String(), "listens beyond loopback without TLS") {
		t.Errorf("no warning: %s", &log)
	}
	grant := far.openTo(t, "near")
	o.Name, o.StateDir, o.Logger = "near", t.TempDir(), nil
	if err := join(t, o).ask(t, far, access{fabric.Read, 0, 4096, grant}); !errors.Is(err, fabric.ErrUnproven) {
		t.Errorf("without the key: %v", err)
	}
	key, err := os.ReadFile(filepath.Join(dir, trust.CellKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	o.StateDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(o.StateDir, trust.CellKeyFile), key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := join(t, o).ask(t, far, access{fabric.Read, 0, 4096, grant}); err != nil {
		t.Errorf("with a copy of the key: %v", err)
	}
}

// A certificate that is renewed while the agent runs is what the next
// connection sees; one that cannot be used is reported and changes nothing.
func TestRenewedCertificateIsTakenUp(t *testing.T) {
	dir := t.TempDir()
	files := issueIn(t, dir, trust.Request{Name: "far", Days: 30})
	log := &lines{}
	far := open(t, AgentOptions{
		Name: "far", StateDir: dir, Fabrics: []string{"tcp"}, TLS: trust.TLS{Mode: trust.TLSRequired}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	near, err := trust.Open(trust.Options{Files: issueIn(t, dir, trust.Request{Name: "near"})})
	if err != nil {
		t.Fatal(err)
	}
	address := addressOf(far)
	shown := func() *big.Int {
		conn, err := tls.Dial("tcp", address, near.Client("far"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber
	}
	inFile := func() *big.Int {
		chain, err := trust.ReadCertificates(files.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return chain[0].SerialNumber
	}
	first := inFile()
	if got := shown(); got.Cmp(first) != 0 {
		t.Fatalf("it shows %v, not %v", got, first)
	}
	issueIn(t, dir, trust.Request{Name: "far", Renew: true})
	second := inFile()
	until.True(t, "the new certificate", func() bool { return shown().Cmp(second) == 0 })
	if err := os.WriteFile(files.Cert, []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	until.True(t, "a warning", func() bool { return shown().Cmp(second) == 0 && log.contains("cannot be used") })
	if !log.contains("the certificate was read again") {
		t.Errorf("the renewal was not told: %s", log)
	}
}

// A directory with TLS lets in who has a certificate; other directories are
// asked without one, except across a network.
func TestDirectories(t *testing.T) {
	dir := t.TempDir()
	server, err := embedded.Open(t.Context(), embedded.Options{
		Dir: filepath.Join(dir, "d"), Listen: "https://127.0.0.1:0", TLS: issueIn(t, dir, trust.Request{Name: "directory", Hosts: []string{"127.0.0.1"}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(t.Context())
	issueIn(t, dir, trust.Request{Name: "a"})
	other := t.TempDir()
	issueIn(t, other, trust.Request{Name: "a"})
	secured := []string{server.Endpoint()}
	for name, c := range map[string]struct {
		DirectoryOptions
		want error
		says string
	}{
		"an agent":          {DirectoryOptions: DirectoryOptions{Endpoints: secured, StateDir: dir, Name: "a"}},
		"a stranger":        {DirectoryOptions{Endpoints: secured, StateDir: dir, Name: "b"}, trust.ErrNoCertificate, "`meridian cert issue b`"},
		"an agent, TLS off": {DirectoryOptions{Endpoints: secured, StateDir: dir, Name: "a", TLS: trust.TLS{Mode: trust.TLSOff}}, trust.ErrNoCertificate, "127.0.0.1 has TLS"},
		"another cell's":    {DirectoryOptions{Endpoints: secured, StateDir: other, Name: "a"}, directory.ErrUnavailable, "no trusted CA"},
		"beyond loopback":   {DirectoryOptions{Endpoints: []string{"http://192.0.2.1:2379"}, StateDir: dir, Name: "a"}, errAny, "beyond loopback"},
		"not a URL":         {DirectoryOptions{Endpoints: []string{"http://[::1"}, StateDir: dir, Name: "a"}, directory.ErrInvalid, ""},
		"socket, no TLS":    {DirectoryOptions{StateDir: other, Name: "c", TLS: trust.TLS{Mode: trust.TLSRequired}}, directory.ErrUnavailable, "directory.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := OpenDirectory(t.Context(), c.DirectoryOptions)
			if err == nil {
				_, err = d.Put(t.Context(), directory.Entry{Key: "a"})
				err = errors.Join(err, d.Close(t.Context()))
			}
			switch {
			case c.want == nil && err != nil,
				c.want != nil && (err == nil || c.want != errAny && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	var log bytes.Buffer
	exposed := DirectoryOptions{Endpoints: []string{"http://192.0.2.1:2379"}, StateDir: dir, Insecure: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	d, err := OpenDirectory(t.Context(), exposed)
	if err != nil || !strings.Contains(log.String(), "level=WARN") {
		t.Fatalf("%v; %s", err, &log)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// lines is a log that is written by several goroutines.
type lines struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) contains(text string) bool { return strings.Contains(l.String(), text) }

// Two agents of one machine with state directories of their own, and so with other
// cell keys, are peers by their certificates: they go over tcp, and neither is refused.
func TestTwoStateDirectoriesOnOneHost(t *testing.T) {
	there, here := t.TempDir(), t.TempDir()
	issueIn(t, there, trust.Request{Name: "far"})
	files := issueIn(t, there, trust.Request{Name: "near"})
	fabrics := []string{"host", "tcp"}
	far := join(t, AgentOptions{Name: "far", StateDir: there, Fabrics: fabrics, TLS: trust.TLS{Mode: trust.TLSRequired}})
	near := join(t, AgentOptions{Name: "near", StateDir: here, Fabrics: fabrics, TLS: trust.TLS{Mode: trust.TLSRequired, Files: files}})
	if err := near.ask(t, far, access{fabric.Read, 0, 4096, far.openTo(t, "near")}); err != nil {
		t.Errorf("a peer with a certificate: %v", err)
	}
	if n := far.Metrics().Audit.Refused; n != 0 {
		t.Errorf("%d refusals, though all is well", n)
	}
}

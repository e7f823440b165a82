package chaos_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"meridian/internal/until"
	"meridian/prove/chaos"
)

// lines is what a program says to its user.
type lines struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// receiver is `meridian recv`, as a user runs it.
type receiver struct {
	*chaos.Process
	t       *testing.T
	state   string
	dir     string
	address string
	out     lines
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t, state: t.TempDir(), dir: t.TempDir(), address: free.Addr().String()}
	free.Close()
	r.Process = chaos.StartProcess(t, chaos.ProcessOptions{
		Path: chaos.Binary(t), Stdout: &r.out, Environment: []string{"HOME=" + r.state, "XDG_CONFIG_HOME=" + r.state},
		Args: []string{"recv", "--name", "r", "--state", r.state, "--no-directory", "--metrics", "", "--listen", r.address, "--dir", r.dir},
	})
	r.until("the receiver waits", func() bool { return strings.Contains(r.out.String(), "waiting for files") })
	return r
}

func (r *receiver) until(what string, is func() bool) {
	r.t.Helper()
	until.Well(r.t, what, func() string {
		if is() {
			return ""
		}
		return "the receiver said\n" + r.out.String() + r.Said()
	})
}

// send runs `meridian send` with a file of that size, which need not take any
// room on the disk.
func (r *receiver) send(name string, size int64) *chaos.Process {
	r.t.Helper()
	path := filepath.Join(r.state, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		r.t.Fatal(err)
	}
	return chaos.StartProcess(r.t, chaos.ProcessOptions{
		Path: chaos.Binary(r.t), Environment: []string{"HOME=" + r.state, "XDG_CONFIG_HOME=" + r.state},
		Args: []string{"send", path, "r", "--state", r.state, "--at", r.address, "--listen", "127.0.0.1:0"},
	})
}

// arriving reports whether some bytes of a file are here, under no name yet.
func (r *receiver) arriving() bool {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(entries) == 0 || !strings.HasPrefix(entries[0].Name(), ".") {
		return false
	}
	info, err := entries[0].Info()
	if err != nil {
		r.t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks > 0 // it has its size from the start
}

// large is the size of a file that takes seconds to send. It is sparse.
const large = 8 << 30

// A sender that dies leaves no half of a file, and the next one is served.
func TestSenderKilled(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	sender := r.send("large", large)
	r.until("a file arrives", r.arriving)
	sender.Kill()
	r.until("the user is told", func() bool { return strings.Contains(r.Said(), "large from send-") })
	if said := r.Said(); !strings.Contains(said, "the peer is gone") {
		t.Errorf("the user is told %q", said)
	}
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) != 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
	small := r.send("small", 1000)
	<-small.Exited()
	r.until("the next file is here", func() bool { return strings.Contains(r.out.String(), "received small from") })
	if info, err := os.Stat(filepath.Join(r.dir, "small")); err != nil || info.Size() != 1000 {
		t.Errorf("%v, %v", info, err)
	}
}

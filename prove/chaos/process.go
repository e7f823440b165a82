package chaos

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a child of the test that plays a role. It dies with the test,
// however that ends.
type Process struct {
	t       testing.TB
	command *exec.Cmd
	exited  chan struct{} // closed once status is known
	status  error
	killed  bool
	foreign bool // another program, which leaves at Ctrl-C
	errors  head
	in      io.WriteCloser
}

// ProcessOptions says what to start.
type ProcessOptions struct {
	// Role is one of Main's; Path, where given, is another program.
	Role, Path string
	Args       []string
	// Environment is added to the test's.
	Environment []string
	// Namespaces are clone flags.
	Namespaces uintptr
	Stdout     io.Writer
}

// StartProcess starts a child.
func StartProcess(t testing.TB, o ProcessOptions) *Process {
	t.Helper()
	if o.Path == "" {
		o.Path = os.Args[0]
		o.Environment = append(o.Environment, role+"="+o.Role)
	}
	p := &Process{t: t, command: exec.Command(o.Path, o.Args...), foreign: o.Role == "", exited: make(chan struct{})}
	p.command.Env = append(os.Environ(), o.Environment...)
	p.command.Stdout, p.command.Stderr = o.Stdout, &p.errors
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: o.Namespaces}
	p.command.WaitDelay = 20 * time.Second
	var err error
	if p.in, err = p.command.StdinPipe(); err == nil {
		err = p.command.Start()
	}
	if err != nil {
		t.Fatalf("cannot start %s %s: %v", o.Path, o.Role, err)
	}
	go func() {
		p.status = p.command.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.Leave)
	return p
}

// PID is the child's.
func (p *Process) PID() int { return p.command.Process.Pid }

// Exited is closed when the child has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Said is the beginning of what the child wrote to its standard error.
func (p *Process) Said() string { return p.errors.String() }

// Kill is kill -9, and waits until there is nothing left.
func (p *Process) Kill() {
	p.killed = true
	_ = p.command.Process.Kill() // it may be gone already
	<-p.exited
}

// Stop and Continue pause the child. When Stop returns, none of its threads runs:
// on a busy machine they go on for a while after the signal was sent.
func (p *Process) Stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	for start := time.Now(); p.runs(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			p.t.Fatalf("process %d does not stop", p.PID())
		}
	}
}

// runs reports whether a thread of the child is not stopped. One that has ended
// does not run.
func (p *Process) runs() bool {
	p.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		// The state follows the name, which may hold anything.
		if _, state, found := bytes.Cut(text, []byte(") ")); found && len(state) > 0 && !strings.ContainsRune("TtZX", rune(state[0])) {
			return true
		}
	}
	return false
}

// Continue ends a pause.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v", s, err)
	}
}

// Leave tells the child to end, by the end of its input or by Ctrl-C, and
// demands that it does so in order.
func (p *Process) Leave() {
	p.t.Helper()
	if p.killed {
		return
	}
	p.killed = true // do not wait for it twice
	p.in.Close()
	if p.foreign {
		_ = p.command.Process.Signal(syscall.SIGINT)
	}
	_ = p.command.Process.Signal(syscall.SIGCONT) // a test that failed may have left it paused
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		_ = p.command.Process.Signal(syscall.SIGQUIT) // its goroutines say where they hang
		select {
		case <-p.exited:
		case <-time.After(20 * time.Second):
			_ = p.command.Process.Kill()
			<-p.exited
		}
		p.t.Errorf("process %d did not end when it was told to:\n%s", p.PID(), p.Said())
		return
	}
	if p.status != nil {
		p.t.Errorf("process %d ended with %v:\n%s", p.PID(), p.status, p.Said())
	}
}

// Limit sets one of the child's limits (unix.RLIMIT_…); another call can lift it.
func (p *Process) Limit(resource int, value uint64) {
	p.t.Helper()
	var limit unix.Rlimit
	err := unix.Prlimit(p.PID(), resource, nil, &limit)
	if err == nil {
		limit.Cur = value
		err = unix.Prlimit(p.PID(), resource, &limit, nil)
	}
	if err != nil {
		p.t.Fatalf("limit %d of process %d: %v", resource, p.PID(), err)
	}
}

// Status reads one field of /proc/PID/status, such as VmRSS, in bytes where it
// has a unit.
func (p *Process) Status(field string) uint64 {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		words := strings.Fields(value)
		if name != field || len(words) == 0 {
			continue
		}
		n, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		if len(words) > 1 {
			n *= 1 << 10 // kB
		}
		return n
	}
	p.t.Fatalf("/proc/%d/status has no %s", p.PID(), field)
	return 0
}

// CPU is how long the child's threads have run, all together, but for those
// that have ended.
func (p *Process) CPU() (total time.Duration) {
	p.t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has just ended
		}
		ran, _, _ := strings.Cut(string(text), " ")
		nanoseconds, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		total += time.Duration(nanoseconds)
	}
	return total
}

// Descriptors is how many files the child has open.
func (p *Process) Descriptors() int {
	p.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(entries)
}

// head keeps the first of what is written to it: what goes wrong first is what
// matters.
type head struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

const headBytes = 8 << 10

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b.Write(p[:min(len(p), headBytes-h.b.Len())])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

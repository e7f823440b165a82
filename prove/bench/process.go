package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a child that takes a JSON object a line on its standard input and
// answers each with one on its standard output. It ends when its input does,
// and dies with this process, however that ends.
type Process struct {
	title  string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *os.File
	lines  *bufio.Reader
	errors tail
	ended  chan struct{} // closed once status is known
	status error
}

// StartProcess starts a child. The caller stops it.
func StartProcess(title string, command, environment []string) (*Process, error) {
	p := &Process{title: title, cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = childOut, &p.errors
	// In a group of its own it does not hear the terminal's Ctrl-C: it is
	// stopped in order, by its input.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = time.Second
	p.in, err = p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	childOut.Close()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("bench: cannot start %s: %w", title, err)
	}
	p.out, p.lines = out, bufio.NewReader(out)
	go func() {
		p.status = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended; Gone says how.
func (p *Process) Exited() <-chan struct{} { return p.ended }

// Ask sends a request and waits for its answer. A process that does not answer
// while ctx lasts is not asked again: the caller stops it.
func (p *Process) Ask(ctx context.Context, request, answer any) error {
	if err := p.Send(request); err != nil {
		return err
	}
	return p.Receive(ctx, answer)
}

// Listens waits until a program lets a client in.
func (p *Process) Listens(ctx context.Context, visit func(context.Context) error) error {
	for {
		err := visit(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.Gone(err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Send sends a request.
func (p *Process) Send(request any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return p.Gone(err)
	}
	return nil
}

// Receive waits for an answer.
func (p *Process) Receive(ctx context.Context, answer any) error {
	line, err := p.Line(ctx)
	if err != nil {
		return err
	}
	var refusal struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(line, &refusal); err != nil {
		return fmt.Errorf("%s answered %q: %w", p.title, line, err)
	}
	if refusal.Error != "" {
		return fmt.Errorf("%s: %s", p.title, refusal.Error)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(line, answer)
}

// Line waits for the next line of its output.
func (p *Process) Line(ctx context.Context) ([]byte, error) {
	_ = p.out.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = p.out.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := p.lines.ReadBytes('\n')
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%s did not answer: %w", p.title, context.Cause(ctx))
	case err != nil:
		return nil, p.Gone(err)
	}
	return line, nil
}

// ErrGone means that a process of the measurement ended before it was told to.
var ErrGone = errors.New("ended unexpectedly")

// Gone says how the process ended, if it has; else it returns err.
func (p *Process) Gone(err error) error {
	select {
	case <-p.ended:
	case <-time.After(time.Second):
		return fmt.Errorf("%s: %w", p.title, err)
	}
	said := p.errors.last()
	if said != "" {
		said = ":\n" + said
	}
	return fmt.Errorf("%s (process %d) %w: %v%s", p.title, p.PID(), ErrGone, p.cmd.ProcessState, said)
}

// Interrupt asks the process to end.
func (p *Process) Interrupt() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// Pause and Resume stop its clock between its turns.
func (p *Process) Pause()  { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *Process) Resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the process in order, or else by force, and waits for it.
func (p *Process) Stop(ctx context.Context) error {
	p.Resume()
	p.in.Close()
	defer p.out.Close()
	select {
	case <-p.ended:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s had to be killed: %w", p.title, ctx.Err())
	}
	if p.status != nil {
		return p.Gone(p.status)
	}
	return nil
}

// FreePort is one of loopback that no process listens on.
func FreePort(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, errors.Join(err, listener.Close())
}

// tail keeps the end of what a process said.
type tail struct {
	mu   sync.Mutex // protects text
	text []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if extra := len(t.text) - tailBytes; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(b), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child that takes a JSON object a line on its standard input and
// answers each with one on its standard output. It ends when its input does,
// and dies with this process, however that ends.
type process struct {
	title  string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *os.File
	lines  *bufio.Reader
	errors tail
	exited chan struct{} // closed once status is known
	status error
}

// startProcess starts a child. The caller stops it.
func startProcess(title string, command, environment []string) (*process, error) {
	p := &process{title: title, cmd: exec.Command(command[0], command[1:]...), exited: make(chan struct{})}
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
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// ask sends a request and waits for its answer. Whoever does not answer while
// ctx lasts is not asked again: the caller stops it.
func (p *process) ask(ctx context.Context, request, answer any) error {
	if err := p.tell(request); err != nil {
		return err
	}
	return p.hear(ctx, answer)
}

func (p *process) tell(request any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return p.gone(err)
	}
	return nil
}

func (p *process) hear(ctx context.Context, answer any) error {
	_ = p.out.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = p.out.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := p.lines.ReadBytes('\n')
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s did not answer: %w", p.title, context.Cause(ctx))
	case err != nil:
		return p.gone(err)
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

// ErrGone means that a process of the measurement ended before it was told to.
var ErrGone = errors.New("ended unexpectedly")

// gone says how the process ended, if it has; else it returns err.
func (p *process) gone(err error) error {
	select {
	case <-p.exited:
	case <-time.After(time.Second):
		return fmt.Errorf("%s: %w", p.title, err)
	}
	said := p.errors.last()
	if said != "" {
		said = ":\n" + said
	}
	return fmt.Errorf("%s (process %d) %w: %v%s", p.title, p.pid(), ErrGone, p.cmd.ProcessState, said)
}

// pause and resume stop its clock between its turns.
func (p *process) pause()  { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// stop ends the process in order, or else by force, and waits for it.
func (p *process) stop(ctx context.Context) error {
	p.resume()
	p.in.Close()
	defer p.out.Close()
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s had to be killed: %w", p.title, ctx.Err())
	}
	if p.status != nil {
		return p.gone(p.status)
	}
	return nil
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

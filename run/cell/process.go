package cell

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// spawner starts processes from one thread that lives as long as they do. The
// kernel tells a child of its parent's death when the thread that made it
// ends, and Go ends threads as it likes, unless a goroutine holds on to one.
type spawner struct {
	births chan func()
	closed chan struct{}
}

func openSpawner() *spawner {
	n := &spawner{births: make(chan func()), closed: make(chan struct{})}
	go func() {
		defer close(n.closed)
		runtime.LockOSThread() // and never unlocked: the thread ends with the nursery
		for birth := range n.births {
			birth()
		}
	}()
	return n
}

// close ends the thread; there must be no children any more.
func (n *spawner) close() {
	close(n.births)
	<-n.closed
}

// process is one child.
type process struct {
	plan     Plan
	command  *exec.Cmd
	identity Identity
	journal  *partLog
	ready    chan string   // its ready line
	exited   chan struct{} // closed when it has ended and all it said is written
}

// start makes a child whose words go to j.
func (n *spawner) start(o Options, plan Plan, j *partLog) (*process, error) {
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &process{plan: plan, journal: j, ready: make(chan string, 1), exited: make(chan struct{})}
	// The program is taken from the process, not from its path, so that one
	// which is replaced meanwhile does not mix two versions in a cell.
	path, before := o.Program, append([]string{o.Program}, o.Globals...)
	if path == "" {
		path, before[0] = "/proc/self/exe", os.Args[0]
	}
	if len(plan.Command) > 0 {
		path, before = plan.Command[0], slices.Clone(plan.Command)
	}
	p.command = exec.Command(path)
	p.command.Args = append(before, plan.Args...)
	p.command.Env = slices.Concat(os.Environ(), o.Environment, plan.Environment)
	p.command.Stdout, p.command.Stderr = childOut, childOut
	// In a group of its own it does not hear the terminal's Ctrl-C: it is
	// stopped when its turn comes.
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	n.births <- func() { started <- p.command.Start() }
	err = <-started
	childOut.Close()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("cell: cannot start %s: %w", plan.Name, err)
	}
	// A child that has ended already stays a zombie until it is waited for, so
	// its pid is its own.
	p.identity, err = identify(p.command.Process.Pid)
	j.begin()
	j.remark("process started", "pid", p.command.Process.Pid, "command", strings.Join(p.command.Args, " "))
	go p.attend(out)
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("cell: %s: %w", plan.Name, err)
	}
	return p, nil
}

// attend writes down what the child says until it has ended.
func (p *process) attend(out *os.File) {
	defer close(p.exited)
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		p.listen(out)
	}()
	p.endFollowers()
	_ = p.command.Wait()                                 // how it ended is in its ProcessState
	_ = out.SetReadDeadline(time.Now().Add(time.Second)) // a child of its own may hold the pipe
	<-listened
	out.Close()
	p.journal.remark("process ended", "pid", p.identity.PID, "status", p.status())
}

// followerGrace is how long those may take to leave whom a child left behind:
// vLLM's clean up shared memory.
const followerGrace = 2 * time.Second

// endFollowers waits for the child's end, and ends what it started and left
// behind. It has not been waited for yet, so pid and group are its own.
func (p *process) endFollowers() {
	pid := p.command.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	followers, _ := p.identity.followers() // who is not found is killed
	for _, f := range followers {
		_ = unix.Kill(f.PID, unix.SIGTERM) // it may have ended
	}
	for began := time.Now(); len(followers) > 0 && time.Since(began) < followerGrace; time.Sleep(10 * time.Millisecond) {
		followers, _ = p.identity.followers()
	}
	_ = unix.Kill(-pid, unix.SIGKILL) // mostly the group is empty
}

// longestLine bounds what is kept of one line.
const longestLine = 64 << 10

func (p *process) listen(out io.Reader) {
	saysReady := func(string) bool { return false }
	if p.plan.Ready != "" {
		saysReady = regexp.MustCompile("^" + p.plan.Ready).MatchString
	}
	for lines := bufio.NewReaderSize(out, longestLine); ; {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			text := strings.TrimRight(string(line), "\r\n")
			p.journal.write(text)
			if said := readyText(text); saysReady(said) {
				select {
				case p.ready <- said:
				default: // it said so before
				}
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (p *process) terminate() { _ = p.command.Process.Signal(syscall.SIGTERM) } // it may have ended

// kill ends the child and waits until there is nothing left of it.
func (p *process) kill() {
	_ = p.command.Process.Kill() // it may have ended
	<-p.exited
}

// status says how a child that has exited did so.
func (p *process) status() string { return p.command.ProcessState.String() }

func (p *process) ended(how string) *EndError {
	return &EndError{Part: p.plan.Name, How: how, Log: p.journal.path, Said: p.journal.last()}
}

var (
	readyURL = regexp.MustCompile(`ready at (https?://[^\s,]+)`)
	adminURL = regexp.MustCompile(`admin at (https?://[^\s,]+)`)
	metrics  = regexp.MustCompile(`metrics at (https?://[^\s,]+)`)
)

// readyText is what a part says for people, where it says it in an event of JSON.
func readyText(line string) string {
	said, isReady := line, false
	if strings.HasPrefix(line, "{") {
		for _, a := range fromObject(line) {
			switch a.key {
			case "msg":
				isReady = a.value == ReadyEvent
			case "text":
				said = a.value
			}
		}
	}
	if !isReady {
		return line
	}
	return said
}

// ReadyEvent is the event of a part that serves; its text is the line that it prints
// where logs are for people.
const ReadyEvent = "ready"

// serviceIn finds where a part serves in its ready line.
func serviceIn(line string) *service {
	found := func(pattern *regexp.Regexp) string {
		if match := pattern.FindStringSubmatch(line); match != nil {
			return match[1]
		}
		return ""
	}
	return &service{url: found(readyURL), admin: found(adminURL), metrics: found(metrics)}
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/cell"
)

// program is bin/meridian as `make test` names it, else built here: a cell of
// race-detecting engines would take its time.
func program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("MERIDIAN_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "meridian")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// shell types commands, each with the same state directory.
type shell struct {
	t              *testing.T
	program, state string
}

func newShell(t *testing.T) *shell {
	return &shell{t: t, program: program(t), state: filepath.Join(t.TempDir(), "s")}
}

func (s *shell) command(args ...string) *exec.Cmd {
	command := exec.Command(s.program, append(args, "--state", s.state)...)
	command.Env = append(plainEnvironment(), "HOME="+s.t.TempDir())
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// typed runs a command and returns what it printed; it must end with status.
func (s *shell) typed(status int, input string, args ...string) string {
	s.t.Helper()
	var out, problems bytes.Buffer
	command := s.command(args...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &problems
	_ = command.Run() // the status is looked at
	if got := command.ProcessState.ExitCode(); got != status {
		s.t.Fatalf("meridian %v exits with %d, want %d:\n%s%s", args, got, status, out.String(), problems.String())
	}
	return out.String()
}

// screen is what somebody at a terminal sees.
type screen struct {
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

var smallCell = []string{"up", "--model", "tiny", "--workers", "1x1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}

// up starts a cell and returns when it is ready.
func (s *shell) up() *exec.Cmd {
	s.t.Helper()
	seen := new(screen)
	command := s.command(smallCell...)
	command.Stdout, command.Stderr = seen, seen
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.until("the cell is ready", func() bool { return strings.Contains(seen.String(), "stop    Ctrl-C") }, seen)
	return command
}

func (s *shell) until(what string, is func() bool, seen *screen) {
	s.t.Helper()
	for start := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			s.t.Fatalf("not %s:\n%s", what, seen)
		}
	}
}

func (s *shell) record() *cell.Record {
	s.t.Helper()
	r, err := cell.ReadRecord(s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// The main promise, shown with real processes: what prefill and decode workers
// of different cuts answer together is what one engine answers alone.
func TestDemo(t *testing.T) {
	s := newShell(t)
	began := time.Now()
	out := s.typed(exitOK, "", "up", "--demo", "--model", "tiny", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; !regexp.MustCompile(`^parity: equal \(40 prompts, \d{4,} tokens\)$`).MatchString(last) {
		t.Errorf("the demo ends with %q:\n%s", last, out)
	}
	for _, phase := range []string{"queue", "prefill", "hand-off", "TTFT", "TTFVT", "TTOT", "think ITL", "answer ITL"} {
		if !regexp.MustCompile(`(?m)^ *` + phase + ` +[0-9.]+ +[0-9.]+ +[0-9.]+ +[1-9]`).MatchString(out) {
			t.Errorf("no latency of %s in\n%s", phase, out)
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the demo took %v", took)
	}
	if _, err := cell.ReadRecord(s.state); err == nil {
		t.Error("the cell is still there")
	}
}

func TestCellLivesAndIsLookedAt(t *testing.T) {
	s := newShell(t)
	up := s.up()
	var status cell.Status
	if err := json.Unmarshal([]byte(s.typed(exitOK, "", "status", "--json")), &status); err != nil || !status.AllUp || len(status.Parts) != 6 {
		t.Errorf("%+v, %v", status, err)
	}
	if out := s.typed(exitOK, "", "status"); !regexp.MustCompile(`(?m)^decode-0 +\d+ +ready`).MatchString(out) {
		t.Error(out)
	}
	if out := s.typed(exitOK, "Hello\n", "chat", "--max-tokens", "60"); len(strings.TrimSpace(out)) == 0 {
		t.Error("nothing was said")
	}
	if out := s.typed(exitOK, "", "logs", "gateway"); !strings.Contains(out, "gateway ready at http://") {
		t.Error(out)
	}
	s.typed(exitFailure, "", smallCell...) // one cell to a state directory
	dead := s.record().Part("decode-0").Process
	if err := syscall.Kill(dead.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.until("decode-0 is back", func() bool {
		r := s.record().Part("decode-0")
		return r.State == cell.Ready && r.Restarts > 0
	}, nil)
	s.until("it answers again", func() bool {
		command := s.command("chat", "--max-tokens", "60")
		command.Stdin = strings.NewReader("Hello again\n")
		out, err := command.Output()
		return err == nil && len(out) > 1
	}, nil)
	if err := up.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := up.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	s.typed(exitFailure, "", "status")
}

func TestCellAfterAKill(t *testing.T) {
	s := newShell(t)
	began := time.Now()
	up := s.up()
	first := time.Since(began)
	before := s.record()
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.Wait() // it was killed
	began = time.Now()
	up = s.up()
	// Names of the dead are theirs until leases end; nobody waits for that.
	if took := time.Since(began); took > 4*first+5*time.Second {
		t.Errorf("a start after a kill took %v, the one before %v", took, first)
	}
	for _, p := range before.Parts {
		if p.Process.Alive() {
			t.Errorf("%s of the killed cell still runs", p.Name)
		}
	}
	reaped := make(chan error, 1)
	go func() { reaped <- up.Wait() }()
	if out := s.typed(exitOK, "", "down"); !strings.Contains(out, "stopped the cell") {
		t.Error(out)
	}
	if err := <-reaped; err != nil {
		t.Errorf("after down: %v", err)
	}
}

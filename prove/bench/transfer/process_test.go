package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/prove/bench"
)

func openSmallOurs(t *testing.T, kind fabricKind) *ours {
	t.Helper()
	o := smallRun(t)
	o.Streams = 3
	m, err := openOurs(t.Context(), o, kind, variant{"on", noProtection})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.load(t.Context(), Case{Op: "write", Block: 4096, Total: 1 << 20, Layout: Scattered}); err != nil {
		t.Fatal(err)
	}
	return m
}

// A fabric that swaps two blocks must fail the run: here the serving side is
// told of another row than the one that is moved.
func TestVerifyComparesWithTheRow(t *testing.T) {
	for _, kind := range fabrics {
		t.Run(kind.name, func(t *testing.T) { verifyCompares(t, kind) })
	}
}

func verifyCompares(t *testing.T, kind fabricKind) {
	m := openSmallOurs(t, kind)
	if _, err := m.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := m.verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := m.current
	other.Block *= 2
	local, err := other.list(posting)
	if err != nil {
		t.Fatal(err)
	}
	remote, err := m.current.list(serving)
	if err != nil {
		t.Fatal(err)
	}
	m.release()
	if err := m.prepare(local, remote); err != nil {
		t.Fatal(err)
	}
	if _, err := m.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := m.verify(t.Context()); err == nil || !strings.Contains(err.Error(), ErrContents.Error()) {
		t.Errorf("wrong blocks went unseen: %v", err)
	}
	if err := m.clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.verify(t.Context()); err == nil {
		t.Error("an empty destination went unseen")
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if m.child != nil {
		if err := syscall.Kill(m.child.PID(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the serving side is left: %v", err)
		}
	}
	if _, err := os.Stat(m.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", m.dir, err)
	}
}

func TestServingSideDies(t *testing.T) {
	for name, ask := range map[string]func(*ours) error{
		"in a round": func(m *ours) error {
			for {
				if _, err := m.round(t.Context(), false); err != nil {
					return err
				}
			}
		},
		"when asked": func(m *ours) error {
			<-m.child.Exited()
			return m.verify(t.Context())
		},
	} {
		m := openSmallOurs(t, fabricByName("tcp"))
		kill := time.AfterFunc(20*time.Millisecond, func() { _ = syscall.Kill(m.child.PID(), syscall.SIGKILL) })
		err := ask(m)
		kill.Stop()
		says := fmt.Sprintf("the serving side (process %d) ended unexpectedly: signal: killed", m.child.PID())
		if !errors.Is(err, bench.ErrGone) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
		if err := m.Close(t.Context()); !errors.Is(err, bench.ErrGone) {
			t.Errorf("%s: closing: %v", name, err)
		}
	}
}

func TestServingSideSaysWhatIsWrong(t *testing.T) {
	p, err := bench.StartProcess("the serving side", serveCommand(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for do, says := range map[string]string{
		"load": `"load" before open`, "dance": `"dance" before open`, "offer": `"offer" before lend`,
	} {
		if err := p.Ask(t.Context(), request{Do: do}, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", do, err)
		}
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A process that does not answer is given up, and killed when it does not stop.
func TestSilentProcess(t *testing.T) {
	p, err := bench.StartProcess("the sleeper", []string{"sleep", "1000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Ask(ctx, request{Do: "load"}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	p.Pause()
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "had to be killed") {
		t.Errorf("%v", err)
	}
	if _, err := bench.StartProcess("missing", []string{"/does/not/exist"}, nil); err == nil {
		t.Error("a program that is not there was started")
	}
}

// beKilled is a parent with two children, one of them stopped, that waits to be
// killed.
func beKilled() {
	self, _ := os.Executable()
	for _, stopped := range []bool{false, true} {
		p, err := bench.StartProcess("a child", []string{self, "bench", "__serve"}, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = p.Ask(context.Background(), request{Do: "hello"}, nil)
		if stopped {
			p.Pause()
		}
		fmt.Println(p.PID())
	}
	select {}
}

func TestNoOrphans(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self, "bench", "__parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var children []int
	for lines := bufio.NewScanner(out); len(children) < 2 && lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, pid)
	}
	if len(children) != 2 {
		t.Fatalf("%d children", len(children))
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for _, pid := range children {
		until.True(t, fmt.Sprintf("process %d ends with its parent", pid), func() bool { return !running(pid) })
	}
}

// running is false for a process that is gone or only waits to be buried.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

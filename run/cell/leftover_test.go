package cell

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// supervisor is a cell that another process runs.
func (s *stage) supervisor() *exec.Cmd {
	s.t.Helper()
	command := exec.Command(os.Args[0], s.options.StateDir)
	command.Env = append(os.Environ(), playing+"=supervisor")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "up\n" {
		s.t.Fatalf("%q, %v", line, err)
	}
	return command
}

func (s *stage) record() *Record {
	s.t.Helper()
	r, err := ReadRecord(s.options.StateDir)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func kill(t *testing.T, command *exec.Cmd) {
	t.Helper()
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait() // it was killed
}

func TestKilledSupervisorTakesItsPartsAlong(t *testing.T) {
	s := newStage(t)
	up := s.supervisor()
	r := s.record()
	kill(t, up)
	for _, p := range r.Parts {
		if !p.Process.wait(t.Context(), time.Minute) {
			t.Errorf("%s still runs", p.Name)
		}
	}
}

func TestStartAfterKillEndsWhatWasLeft(t *testing.T) {
	s := newStage(t)
	s.habit("prefill-1", "deaf") // hears of its parent's death, and stays
	up := s.supervisor()
	left := s.record().Part("prefill-1").Process
	kill(t, up)
	socket := filepath.Join(s.options.StateDir, "door-prefill.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	if !left.Alive() {
		t.Fatal("nothing was left")
	}
	s.habit("prefill-1", "")
	s.open()
	if left.Alive() {
		t.Error("prefill-1 of the killed cell still runs")
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("its socket is still there")
	}
	if e := s.await("cell", Starting); !strings.Contains(e.Detail, "ended what it left: ") || !strings.Contains(e.Detail, "prefill-1") {
		t.Errorf("%+v", e)
	}
}

func TestStrangerWithTheSamePIDIsLeftAlone(t *testing.T) {
	stranger := exec.Command("sleep", "60")
	stranger.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer kill(t, stranger)
	right, err := identify(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Identity){
		"started at another time": func(id *Identity) { id.StartTicks-- },
		"another program":         func(id *Identity) { id.Program = "/bin/meridian" },
		"another boot":            func(id *Identity) { id.Boot = "0" },
	} {
		t.Run(name, func(t *testing.T) {
			id := right
			change(&id)
			s := newStage(t)
			r := Record{Version: recordVersion, Parts: []PartRecord{{Name: "decode-0", State: Ready, Process: &id}}}
			if err := r.write(s.options.StateDir); err != nil {
				t.Fatal(err)
			}
			left, err := cleanUp(t.Context(), s.options.StateDir)
			if err != nil || !left.Unclean || len(left.Parts) != 0 {
				t.Errorf("%+v, %v", left, err)
			}
			if err := id.end(t.Context(), enough); err != nil {
				t.Error(err)
			}
			if !right.Alive() {
				t.Fatal("the stranger was killed")
			}
		})
	}
}

func TestSocketInUseIsNotSwept(t *testing.T) {
	s := newStage(t)
	listener, err := net.Listen("unix", filepath.Join(s.options.StateDir, "directory.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := sweep(s.options.StateDir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(listener.Addr().String()); err != nil {
		t.Error(err)
	}
}

func TestDirectoryOfTheDeadIsForgotten(t *testing.T) {
	s := newStage(t)
	data := filepath.Join(s.options.StateDir, "directory", "member")
	lock, err := os.Create(filepath.Join(s.options.StateDir, "directory.lock"))
	if err == nil {
		err = os.MkdirAll(data, 0o700)
	}
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} { // while a process serves it, then when none does
		if err := forget(s.options.StateDir); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(data); (err == nil) != want {
			t.Errorf("its data is there: %v, want %v", !want, want)
		}
		lock.Close()
	}
}

func TestDown(t *testing.T) {
	s := newStage(t)
	if _, err := Down(t.Context(), s.options.StateDir); !errors.Is(err, ErrNoCell) {
		t.Error(err)
	}
	if _, err := Down(t.Context(), s.options.StateDir+"-that-is-not"); !errors.Is(err, ErrNoCell) {
		t.Error(err)
	}
	up := s.supervisor()
	reaped := make(chan error, 1)
	go func() { reaped <- up.Wait() }()
	ended, err := Down(t.Context(), s.options.StateDir)
	if err != nil || ended.Supervisor != up.Process.Pid || ended.Unclean {
		t.Errorf("%+v, %v", ended, err)
	}
	if err := <-reaped; err != nil {
		t.Errorf("the supervisor was not asked, but killed: %v", err)
	}
	if got := s.chronicle(); got[len(got)-1] != "stop directory" {
		t.Errorf("%v", got)
	}
}

func TestDownEndsWhatAKilledCellLeft(t *testing.T) {
	s := newStage(t)
	s.habit("gateway", "deaf")
	up := s.supervisor()
	left := s.record().Part("gateway").Process
	kill(t, up)
	ended, err := Down(t.Context(), s.options.StateDir)
	if err != nil || ended.Supervisor != 0 || !ended.Unclean {
		t.Errorf("%+v, %v", ended, err)
	}
	if left.Alive() {
		t.Error("the gateway still runs")
	}
}

func TestParseStat(t *testing.T) {
	const rest = " S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 3 21 4711 23"
	for name, text := range map[string]string{"plain": "12 (sleep)" + rest, "hostile name": "12 (a) R 1 (b)" + rest} {
		got, err := parseStat(text)
		if err != nil || got.startTicks != 4711 || got.threads != 3 || got.over() {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, text := range []string{"", "12 (sleep) S 1", "12 (sleep)" + strings.Replace(rest, "4711", "soon", 1)} {
		if _, err := parseStat(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

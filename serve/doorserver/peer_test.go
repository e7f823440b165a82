package doorserver

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Kernels that do not tell which process connected give its number; one whose
// connection is over is not believed.
func TestPeerByItsNumber(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	pidfd, err := openPeer(fds[0], os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(pidfd)
	unix.Close(fds[1])
	if _, err := openPeer(fds[0], os.Getpid()); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a connection that is over: %v", err)
	}
}

func TestPeerOfThisProcess(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	file := os.NewFile(uintptr(fds[0]), "end")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := peerOf(conn.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	defer p.process.Close()
	if p.pid != os.Getpid() || int(p.uid) != os.Geteuid() {
		t.Errorf("%v", p)
	}
	p.stopWatching()
	if p.waitExit() {
		t.Error("this process has ended, it says")
	}
}

func TestEndOfAProcessIsSeen(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(pidfd, true); err != nil {
		t.Fatal(err)
	}
	p := peer{pid: cmd.Process.Pid, process: os.NewFile(uintptr(pidfd), "pidfd")}
	defer p.process.Close()
	seen := make(chan bool)
	go func() { seen <- p.waitExit() }()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !<-seen {
		t.Error("its end was not seen")
	}
}

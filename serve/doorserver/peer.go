package doorserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end of a connection, as the kernel knows it.
type peer struct {
	uid uint32
	pid int
	// process is a pidfd: it stays the process's also when the number is used
	// again.
	process *os.File
	// guessed says that the kernel did not give the pidfd itself.
	guessed bool
}

func (p peer) String() string { return fmt.Sprintf("pid %d of user %d", p.pid, p.uid) }

// peerOf asks the kernel. Nothing of it comes from a message.
func peerOf(socket *net.UnixConn) (p peer, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return p, err
	}
	if ctl := raw.Control(func(fd uintptr) { p, err = askPeer(int(fd)) }); ctl != nil {
		return p, ctl
	}
	return p, err
}

func askPeer(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{}, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	p := peer{uid: cred.Uid, pid: int(cred.Pid)}
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) || errors.Is(err, unix.EOPNOTSUPP) {
		p.guessed = true
		pidfd, err = openPeer(fd, p.pid)
	}
	if err != nil {
		return p, fmt.Errorf("the process at the other end: %w", err)
	}
	if err := unix.SetNonblock(pidfd, true); err != nil { // so that its end can be waited for
		unix.Close(pidfd)
		return p, err
	}
	p.process = os.NewFile(uintptr(pidfd), fmt.Sprintf("pidfd of %d", p.pid))
	return p, nil
}

// openPeer is for kernels older than 6.5. The number might have been used again
// before it was opened; but then the process that connected had ended, and with
// it, most likely, its end of the socket.
func openPeer(fd, pid int) (int, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err = unix.Poll(poll, 0)
	if err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) != 0 {
		err = unix.ESRCH
	}
	if err != nil {
		unix.Close(pidfd)
		return -1, err
	}
	return pidfd, nil
}

// waitExit waits until the process has ended, or until stopWatching.
func (p peer) waitExit() bool {
	raw, err := p.process.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	_ = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		ended = err == nil && n > 0
		return ended
	})
	return ended
}

func (p peer) stopWatching() { _ = p.process.SetReadDeadline(time.Unix(1, 0)) }

// dupPidfd returns a descriptor of the process for memory that is borrowed from it,
// which may outlive the connection.
func (p peer) dupPidfd() (pidfd int, err error) {
	raw, err := p.process.SyscallConn() // not Fd, which would make waiting block a thread
	if err != nil {
		return -1, err
	}
	if ctl := raw.Control(func(fd uintptr) { pidfd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); ctl != nil {
		return -1, ctl
	}
	return pidfd, err
}

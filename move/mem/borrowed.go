package mem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BorrowOptions describes memory of another process.
type BorrowOptions struct {
	// PIDFD holds the process; Borrow takes it over. A number alone could
	// belong to another process by the time it is used.
	PIDFD int
	PID   int
	// Address and SizeBytes are the stretch, in that process's address space.
	Address, SizeBytes uint64
	Device             uint32
}

// Borrow makes a section of memory that another process lends. The kernel
// checks that this process may read and write it (see doctor: ptrace scope).
func Borrow(o BorrowOptions) (*Section, error) {
	if o.SizeBytes == 0 || o.Address+o.SizeBytes < o.Address {
		unix.Close(o.PIDFD)
		return nil, fmt.Errorf("%w: borrowed [%#x,+%d)", ErrBounds, o.Address, o.SizeBytes)
	}
	b := &borrowed{pidfd: o.PIDFD, pid: o.PID, address: o.Address}
	if err := b.alive(); err != nil {
		unix.Close(o.PIDFD)
		return nil, err
	}
	s := newSection(Borrowed, o.Address, o.SizeBytes, nil, b)
	s.device = o.Device
	return s, nil
}

// LendBorrowed returns the pidfd of the process that borrowed memory is in, and
// where it is there, so that another process can read it with OpenLent if the
// kernel lets it. The caller holds a reference during the call and closes the
// descriptor.
func (s *Section) LendBorrowed() (pidfd *os.File, address uint64, err error) {
	b, is := s.backing.(*borrowed)
	if !is {
		return nil, 0, fmt.Errorf("mem: a section of kind %v is not borrowed", s.kind)
	}
	fd, err := unix.FcntlInt(uintptr(b.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("mem: lend: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), b.address, nil
}

// OpenLent makes a section, to be read only, of memory that its owner has
// borrowed and lends on; it takes the pidfd over. The process is the pidfd's,
// whatever its lender says, and whether the kernel lets this one read there is
// tried at once.
func OpenLent(pidfd int, address, sizeBytes uint64) (*Section, error) {
	pid, err := pidOf(pidfd)
	if err != nil {
		unix.Close(pidfd)
		return nil, err
	}
	s, err := Borrow(BorrowOptions{PIDFD: pidfd, PID: pid, Address: address, SizeBytes: sizeBytes})
	if err != nil {
		return nil, err
	}
	s.readOnly = true
	var b [1]byte
	if err := errors.Join(s.ReadAt(b[:], 0), s.ReadAt(b[:], sizeBytes-1)); err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

// PID is the process that borrowed memory is in, and 0 for any other kind.
func (s *Section) PID() int {
	if b, is := s.backing.(*borrowed); is {
		return b.pid
	}
	return 0
}

// pidOf asks the kernel which process a pidfd holds, as this one sees it.
func pidOf(pidfd int) (int, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0, fmt.Errorf("mem: %w", err)
	}
	for line := range strings.Lines(string(info)) {
		if number, found := strings.CutPrefix(line, "Pid:"); found {
			switch pid, err := strconv.Atoi(strings.TrimSpace(number)); {
			case err != nil || pid == 0:
				return 0, errors.New("mem: the process is not in this PID namespace")
			case pid < 0:
				return 0, ErrGone
			default:
				return pid, nil
			}
		}
	}
	return 0, errors.New("mem: the descriptor is not of a process")
}

type borrowed struct {
	pidfd, pid int
	address    uint64
}

// alive asks the pidfd, which cannot be fooled by a reused number.
func (b *borrowed) alive() error {
	poll := []unix.PollFd{{Fd: int32(b.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("mem: poll pidfd: %w", err)
	}
	if n > 0 {
		return fmt.Errorf("%w: pid %d", ErrGone, b.pid)
	}
	return nil
}

// access checks that the process is the one that lent the memory before the
// call, and again after it: had its number been reused in between, what was
// copied is not ours to use.
func (b *borrowed) access(p []byte, offset uint64, call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) error {
	if err := b.alive(); err != nil {
		return err
	}
	for done := 0; done < len(p); {
		local := []unix.Iovec{{Base: &p[done]}}
		local[0].SetLen(len(p) - done)
		remote := []unix.RemoteIovec{{Base: uintptr(b.address + offset + uint64(done)), Len: len(p) - done}}
		n, err := call(b.pid, local, remote, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ESRCH):
			return fmt.Errorf("%w: pid %d", ErrGone, b.pid)
		case err != nil:
			return fmt.Errorf("mem: memory of pid %d at %#x: %w", b.pid, b.address+offset+uint64(done), err)
		case n <= 0:
			return fmt.Errorf("mem: memory of pid %d at %#x: no progress", b.pid, b.address+offset+uint64(done))
		}
		done += n
	}
	return b.alive()
}

func (b *borrowed) ReadAt(p []byte, offset uint64) error {
	return b.access(p, offset, unix.ProcessVMReadv)
}

func (b *borrowed) WriteAt(p []byte, offset uint64) error {
	return b.access(p, offset, unix.ProcessVMWritev)
}

func (b *borrowed) Close() error { return unix.Close(b.pidfd) }

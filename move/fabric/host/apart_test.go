package host

import (
	"context"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
	"meridian/move/mem"
	"meridian/move/mrdn"
)

// apart is memory of this process, reached as an engine's would be.
func apart(t testing.TB, sizeBytes uint64) (*mem.Section, []byte) {
	t.Helper()
	lent, err := unix.Mmap(-1, 0, int(sizeBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	section, err := mem.Borrow(mem.BorrowOptions{
		PIDFD: pidfd, PID: os.Getpid(), Address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(lent)))), SizeBytes: sizeBytes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return section, lent
}

// Memory of engines, which lies in their processes: the same promises.
func TestSuiteApart(t *testing.T) {
	engines := func(t testing.TB, sizeBytes uint64) *mem.Section {
		section, lent := apart(t, sizeBytes)
		t.Cleanup(func() { _ = unix.Munmap(lent) })
		return section
	}
	for name, o := range map[string]fabrictest.Options{
		"both": {NearSection: engines, FarSection: engines}, "near": {NearSection: engines},
	} {
		t.Run(name, func(t *testing.T) {
			all := suite(t, Options{Workers: 2})
			all.Brief, all.NearSection, all.FarSection = true, o.NearSection, o.FarSection
			fabrictest.Run(t, all)
		})
	}
}

// What the peer's agent cannot reach is refused before a byte of it was taken,
// so that another fabric may be tried.
func TestSourceThatCannotBeReached(t *testing.T) {
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		near, far := newAgent(t, "near", 4096, Options{}), newAgent(t, "far", 4096, Options{})
		section, lent := apart(t, 4096)
		t.Cleanup(func() { _ = unix.Munmap(lent) })
		if err := unix.Mprotect(lent, unix.PROT_NONE); err != nil { // its address stays taken
			t.Fatal(err)
		}
		owner, local, remote := near, dense(4096, 7), dense(4096, 7)
		if op == fabric.Read {
			owner = far
			remote[0].Region = 2
		} else {
			local[0].Region = 2
		}
		if err := owner.Register(fabric.Region{ID: 2, Epoch: 7, Section: section}); err != nil {
			t.Fatal(err)
		}
		l := near.connect(t, far.peer())
		for range 2 {
			prepared, err := l.Prepare(op, local, remote)
			if err != nil {
				t.Fatal(err)
			}
			posted, err := l.Post(t.Context(), prepared, fabric.PostOptions{ID: newID()})
			if err != nil {
				t.Fatal(err)
			}
			if err := posted.Await(soon(t)); !errors.Is(err, fabric.ErrRefused) {
				t.Errorf("%v: %v, want %v", op, err, fabric.ErrRefused)
			}
			if state, _ := posted.Status(); state != fabric.NotSubmitted {
				t.Errorf("%v: %v, want %v", op, state, fabric.NotSubmitted)
			}
			prepared.Release()
		}
		if err := owner.Deregister(t.Context(), 2); err != nil {
			t.Error(err)
		}
		if err := section.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// The process whose memory is read is the descriptor's, not the lender's to name.
func TestLoansOfNoProcess(t *testing.T) {
	a := newAgent(t, "a", 4096, Options{})
	s := newStranger(t, a)
	s.lend = mrdn.Lend{Region: 1, Epoch: 7, Serial: 1, Address: 4096, SizeBytes: 4096}
	if ack := s.write(memfd(t, 4096, fixedSize), mrdn.Source{Cell: 3, Turn: 9}); ack.Code != mrdn.CodeRefused || !ack.Untouched {
		t.Errorf("%+v", ack)
	}
}

// A peer in another process cannot have an agent copy the agent's own memory.
func TestOwnMemoryIsNotLentByOthers(t *testing.T) {
	held, lent := apart(t, 4096)
	defer unix.Munmap(lent)
	defer held.Close(t.Context())
	lend := mrdn.Lend{Region: 1, Address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(lent)))), SizeBytes: 4096}
	for lender, own := range map[int]bool{os.Getpid(): true, os.Getppid(): false} {
		pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		b := borrowed{lender: lender}
		section, err := b.openLent(lend, pidfd)
		if (err == nil) != own {
			t.Errorf("lent by itself %t: %v", own, err)
		}
		if err == nil {
			_ = section.Close(t.Context())
		}
	}
}

package mem

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func closeNow(t *testing.T, s *Section) {
	t.Helper()
	if n := s.References(); n != 0 {
		t.Errorf("%d references leaked", n)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func newArena(t *testing.T, size uint64) *Arena {
	t.Helper()
	a, err := NewArena(ArenaOptions{Name: "test", SizeBytes: size, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// exercise reads and writes at the edges of a section.
func exercise(t *testing.T, s *Section) {
	t.Helper()
	if err := s.Acquire(); err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	for _, offset := range []uint64{0, 1, s.Size() - 5} {
		want := []byte{1, 2, 3, byte(offset), 5}
		got := make([]byte, 5)
		if err := errors.Join(s.WriteAt(want, offset), s.ReadAt(got, offset)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v at %d: got %v, %v", s.Kind(), offset, got, err)
		}
	}
	for _, offset := range []uint64{s.Size() - 4, s.Size(), s.Size() + 1, 1<<64 - 1} {
		if err := s.WriteAt(make([]byte, 5), offset); !errors.Is(err, ErrBounds) {
			t.Errorf("%v: write of 5 bytes at %d: %v", s.Kind(), offset, err)
		}
		if err := s.ReadAt(make([]byte, 5), offset); !errors.Is(err, ErrBounds) {
			t.Errorf("%v: read of 5 bytes at %d: %v", s.Kind(), offset, err)
		}
	}
}

func TestArena(t *testing.T) {
	a := newArena(t, 10_000)
	if a.Size() != 12288 || a.Kind() != DRAM || !a.Mapped() {
		t.Errorf("%d bytes of %v", a.Size(), a.Kind())
	}
	exercise(t, a.Section)
	if err := unix.Ftruncate(a.FD(), 0); err == nil {
		t.Error("the memfd could be cut under its mappings")
	}
	fd, err := unix.Dup(a.FD())
	if err != nil {
		t.Fatal(err)
	}
	reader, err := MapArena(fd, false)
	if err != nil {
		t.Fatal(err)
	}
	copy(a.Bytes(100, 5), "hello")
	if got := reader.Bytes(100, 5); string(got) != "hello" {
		t.Errorf("the other mapping sees %q", got)
	}
	if !a.Writable() || reader.Writable() {
		t.Errorf("writable: the arena %v, its reader %v", a.Writable(), reader.Writable())
	}
	if err := reader.WriteAt([]byte("x"), 0); !errors.Is(err, ErrReadOnly) {
		t.Errorf("wrote to a read-only mapping: %v", err)
	}
	closeNow(t, reader.Section)
	closeNow(t, a.Section)
	if err := a.Acquire(); !errors.Is(err, ErrClosed) {
		t.Errorf("acquired a closed section: %v", err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestMapArenaRefusesWhatMayShrink(t *testing.T) {
	fd, err := unix.MemfdCreate("loose", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := MapArena(fd, true); err == nil || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("got %v", err)
	}
	for _, size := range []uint64{0, 1 << 50} {
		if _, err := NewArena(ArenaOptions{SizeBytes: size, NUMANode: -1}); !errors.Is(err, ErrBounds) {
			t.Errorf("arena of %d bytes: %v", size, err)
		}
	}
}

func TestCloseWaitsForReferences(t *testing.T) {
	a := newArena(t, 4096)
	if err := a.Acquire(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := a.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("closed under a user: %v", err)
	}
	a.Bytes(0, 1)[0] = 1 // still there
	if err := a.Acquire(); !errors.Is(err, ErrClosed) {
		t.Errorf("a closing section gave out a reference: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	a.Release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "section")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenFile(f, 10_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	exercise(t, s)
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadAt(make([]byte, 10), 95); !errors.Is(err, ErrBounds) {
		t.Errorf("reading past a file that was cut: %v", err)
	}
	if s.Device() != 3 || s.Mapped() {
		t.Errorf("device %d, mapped %v", s.Device(), s.Mapped())
	}
	closeNow(t, s)
	directory, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if _, err := OpenFile(directory, 10, 0); err == nil {
		t.Error("a directory is no section")
	}
}

// TestMain lets this binary play the process that lends memory: it prints the
// address of a buffer and waits for its standard input to end.
func TestMain(m *testing.M) {
	if os.Getenv("MEM_TEST_LEND") != "" {
		buffer := make([]byte, 1<<16)
		copy(buffer, "lent")
		os.Stdout.WriteString(strconv.FormatUint(uint64(uintptr(unsafe.Pointer(&buffer[0]))), 10) + "\n")
		os.Stdin.Read(make([]byte, 1))
		os.Stdout.Write(buffer[:4])
		return
	}
	os.Exit(m.Run())
}

func TestBorrowed(t *testing.T) {
	lender := exec.Command(os.Args[0])
	lender.Env = append(os.Environ(), "MEM_TEST_LEND=1")
	stdin, err := lender.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := lender.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := lender.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := stdout.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address, err := strconv.ParseUint(strings.TrimSpace(string(line[:n])), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(lender.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Borrow(BorrowOptions{PIDFD: pidfd, PID: lender.Process.Pid, Address: address, SizeBytes: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if err := s.ReadAt(got, 0); err != nil || string(got) != "lent" {
		t.Errorf("read %q, %v", got, err)
	}
	exercise(t, s)
	if err := s.WriteAt([]byte("back"), 0); err != nil {
		t.Error(err)
	}
	stdin.Close()
	if n, err := stdout.Read(line); err != nil || string(line[:n]) != "back" {
		t.Errorf("the lender sees %q, %v", line[:n], err)
	}
	if err := lender.Wait(); err != nil {
		t.Error(err)
	}
	if err := s.ReadAt(got, 0); !errors.Is(err, ErrGone) {
		t.Errorf("read of a dead process's memory: %v", err)
	}
	closeNow(t, s)
	for _, o := range []BorrowOptions{{PIDFD: -1, Address: 1 << 63, SizeBytes: 1 << 63}, {PIDFD: -1}} {
		if _, err := Borrow(o); !errors.Is(err, ErrBounds) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestReleaseWithoutAcquirePanics(t *testing.T) {
	a := newArena(t, 4096)
	defer closeNow(t, a.Section)
	defer func() {
		if recover() == nil {
			t.Error("a reference was given back that was not held")
		}
	}()
	a.Release()
}

package mem

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLend(t *testing.T) {
	a, err := NewArena(ArenaOptions{Name: "lend", SizeBytes: 4096, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	copy(a.Bytes(0, 5), "hello")
	f, err := a.Lend()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	writable, _ := unix.Dup(int(f.Fd()))
	if m, err := MapArena(writable, true); err == nil {
		t.Error("a lent arena was mapped for writing")
		_ = m.Close(t.Context())
	}
	readable, _ := unix.Dup(int(f.Fd()))
	m, err := MapArena(readable, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := string(m.Bytes(0, 5)); got != "hello" || m.Size() != 4096 {
		t.Errorf("the borrower sees %q in %d bytes", got, m.Size())
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := a.Lend(); err == nil {
		t.Error("a closed arena was lent")
	}
}

func TestLendRefusesFiles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "section"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenFile(f, 4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	if _, err := s.Lend(); err == nil {
		t.Error("a file was lent as if it were memory")
	}
}

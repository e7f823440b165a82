package chaos_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/prove/chaos"
)

// storing is a puppet with a file of 8 MiB.
func storing(t *testing.T, path string) *fixture {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil && path != ownMemory {
		t.Fatal(err)
	}
	s := &fixture{t: t}
	s.owner = chaos.Start(t, chaos.Setup{Name: "owner", StateDir: t.TempDir(), ArenaBytes: arenaBytes, Seed: ofOwner})
	if f := s.owner.OpenFile(chaos.File{Path: path, SizeBytes: 8 << 20}); f != nil {
		t.Fatal(f)
	}
	return s
}

// kept demands that a stretch can be stored and read back, to the byte.
func (s *fixture) kept(offset, length uint64) {
	s.t.Helper()
	stretch := chaos.Stretch{Offset: offset, Length: length, Seed: ofPoster, Seeds: []uint64{ofPoster}}
	s.owner.Fill(stretch)
	s.done(s.owner.Store(chaos.Post{Op: fabric.Write, Offset: offset, Length: length}))
	s.owner.Fill(chaos.Stretch{Offset: offset, Length: length, Seed: scribbled})
	s.done(s.owner.Store(chaos.Post{Op: fabric.Read, Offset: offset, Length: length}))
	if c := s.owner.Count(stretch); !c.All(ofPoster) {
		s.t.Errorf("read back %+v", c)
	}
}

func TestDiskFull(t *testing.T) {
	if !inItsOwnWorld(t) {
		return
	}
	dir := t.TempDir()
	mountTmpfs(t, dir, 4<<20)
	s := storing(t, filepath.Join(dir, "kv"))
	s.kept(0, 1<<20)
	s.failed(s.owner.Store(chaos.Post{Op: fabric.Write, Length: 8 << 20}), fabric.InDoubt, unix.ENOSPC)
	if c := s.owner.Count(chaos.Stretch{Length: 8 << 20, Seeds: []uint64{ofOwner, ofPoster}}); c.Strange != 0 {
		t.Errorf("the source was touched: %+v", c)
	}
	s.kept(0, 1<<20) // where there is room it goes on
}

func TestFileTooLarge(t *testing.T) {
	t.Parallel()
	s := storing(t, filepath.Join(t.TempDir(), "kv"))
	s.owner.Limit(unix.RLIMIT_FSIZE, 4<<20)
	s.kept(0, 1<<20)
	s.failed(s.owner.Store(chaos.Post{Op: fabric.Write, Length: 8 << 20}), fabric.InDoubt, unix.EFBIG)
	s.kept(0, 1<<20)
}

func TestFileCutShort(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kv")
	s := storing(t, path)
	s.kept(0, 8<<20)
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	s.failed(s.owner.Store(chaos.Post{Op: fabric.Read, Length: 8 << 20}), fabric.InDoubt, mem.ErrBounds)
	s.kept(0, 1<<20)
}

// ownMemory is a file that any process has and that gives real I/O errors: at
// an address where it has no memory, the kernel says EIO.
const ownMemory = "/proc/self/mem"

func TestDiskErrors(t *testing.T) {
	t.Parallel()
	s := storing(t, ownMemory)
	for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
		out := s.owner.Store(chaos.Post{Op: op, Length: 64 << 10}) // page zero is no transfer's
		s.failed(out, fabric.InDoubt, unix.EIO)
	}
	if c := s.owner.Count(chaos.Stretch{Length: 64 << 10, Seeds: []uint64{ofOwner}}); !c.All(ofOwner) {
		t.Errorf("an error changed memory: %+v", c)
	}
}

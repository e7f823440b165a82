package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"meridian/fabric"
	"meridian/mem"
	"meridian/mrdn"
)

func descriptor(t *testing.T, f *os.File, err error) int {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// A flag that goes down when every byte is in place, and nobody pins it any
// more, still spoils the job: that is what holds when the owner of the source
// did not wait.
func TestFenceAfterTheLastPiece(t *testing.T) {
	for name, fenced := range map[string]bool{"fenced": true, "not fenced": false} {
		source, destination := newArena(t), newArena(t)
		copy(source.Bytes(0, 4), "news")
		theirs, err := newBoard(1)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := newBoard(1)
		if err != nil {
			t.Fatal(err)
		}
		lent, err := theirs.raise()
		if err != nil {
			t.Fatal(err)
		}
		var s shelf
		board, err := theirs.arena.Lend()
		if err := s.putBoard(mrdn.Board{Hands: 1}, descriptor(t, board, err)); err != nil {
			t.Fatal(err)
		}
		file, err := source.Lend()
		if err := s.put(mrdn.Lend{Region: 1, Epoch: 7, Cell: lent.cell, Turn: lent.turn}, descriptor(t, file, err)); err != nil {
			t.Fatal(err)
		}
		var regions fabric.Regions
		if err := regions.Add(fabric.Region{ID: 1, Epoch: 7, Section: destination.Section}); err != nil {
			t.Fatal(err)
		}
		list := dense(4096, 7)
		to, err := regions.Bind(list)
		if err != nil {
			t.Fatal(err)
		}
		loans, missing, err := s.take(list)
		if err != nil || missing != nil {
			t.Fatal(missing, err)
		}
		end := errors.New("not yet")
		j := &job{
			shelf: &s, loans: loans, to: to, bytes: 4096, compare: true, unfinished: 2,
			fromWalk: list.Walk(), toWalk: list.Walk(), ended: func(err error) { end = err },
		}
		j.work(ours.hand(0), nil)
		if !bytes.Equal(destination.Bytes(0, 4096), source.Bytes(0, 4096)) {
			t.Errorf("%s: the bytes are not in place", name)
		}
		if fenced {
			theirs.lower(lent)
		}
		j.retire(1)
		if errors.Is(end, fabric.ErrStaleEpoch) != fenced || (end == nil) == fenced {
			t.Errorf("%s: ended with %v", name, end)
		}
		to.Release()
		s.close()
		if err := errors.Join(theirs.close(), ours.close()); err != nil {
			t.Error(err)
		}
	}
}

func newArena(t *testing.T) *mem.Arena {
	t.Helper()
	a, err := mem.NewArena(mem.ArenaOptions{Name: "job", SizeBytes: 4096, NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

package host

import (
	"bytes"
	"testing"
	"time"
	"unsafe"

	"meridian/move/fabric"
)

// A transfer of many small pieces takes several turns of a copier, and all of it
// arrives: also one that a free copier begins at once.
func TestManySmallPieces(t *testing.T) {
	const size = 1 << 19
	near, far := newAgent(t, "near", size, Options{}), newAgent(t, "far", size, Options{})
	l := near.connect(t, far.peer())
	for i := range near.memory.Bytes(0, size) {
		near.memory.Bytes(0, size)[i] = byte(i)%250 + 1
	}
	for _, pieces := range []uint64{quantumCuts, quantumCuts + 1, pieceBytes / 2, 3 * pieceBytes / 2} {
		want := make([]byte, size)
		list := fabric.List{{Region: 1, Epoch: 7}}
		for i := range pieces {
			at := 4*i + i%2 // no pattern
			if err := list[0].Spans.Add(at, 1); err != nil {
				t.Fatal(err)
			}
			want[at] = near.memory.Bytes(0, size)[at]
		}
		clear(far.memory.Bytes(0, size))
		prepared, err := l.Prepare(fabric.Write, list, list)
		if err != nil {
			t.Fatal(err)
		}
		posted, err := l.Post(t.Context(), prepared, fabric.PostOptions{ID: newID()})
		if err != nil {
			t.Fatal(err)
		}
		if err := posted.Await(soon(t)); err != nil {
			t.Fatalf("%d pieces: %v", pieces, err)
		}
		if !bytes.Equal(far.memory.Bytes(0, size), want) {
			t.Errorf("%d pieces: not all arrived, or more did", pieces)
		}
		prepared.Release()
	}
}

// A peer that was given up is not waited for again as soon as it says a word.
func TestHopeComesBackSlowly(t *testing.T) {
	var b borrowed
	now := time.Now()
	b.hopeless.Store(&now)
	if b.heard(time.Minute); b.hopeless.Load() == nil {
		t.Error("a word was enough")
	}
	long := now.Add(-2 * time.Minute)
	// The wall clock was set back by an hour since: its seconds lie above 30 bits of a Time's
	// first word, and package time has no way to change them alone.
	*(*uint64)(unsafe.Pointer(&long)) += 3600 << 30
	if long.Round(0).Before(now.Round(0)) || now.Sub(long) != 2*time.Minute {
		t.Fatal("no clock can be set so: package time has other Times by now")
	}
	b.hopeless.Store(&long)
	if b.heard(time.Minute); b.hopeless.Load() != nil {
		t.Error("it is given up for ever")
	}
}

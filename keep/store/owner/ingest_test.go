package owner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"meridian/keep/store/arena"
	"meridian/kv"
)

// TestIngestWhileProducersWrite: room that a producer took after the owner has
// looked is a producer's room, too. Nothing that was written is refused.
func TestIngestWhileProducersWrite(t *testing.T) {
	const producers, each = 2, 5000
	w, heap, _ := open(t, 8<<20, arena.Options{Headers: producers * each, Ring: 1 << 14}, Options{})
	var writing sync.WaitGroup
	for p := range producers {
		writing.Go(func() {
			for n := range each {
				key := fmt.Appendf(nil, "%d/%d", p, n)
				r, err := heap.Reserve(arena.HashKey(key), 64, len(key), arena.PageSize)
				if err != nil {
					t.Error(err)
					return
				}
				told := heap.AnnounceOf(&r, 0)
				if !heap.Write(&r, key, make([]byte, 64)) || !heap.Tell(&told) {
					t.Errorf("%s was not stored", key)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		writing.Wait()
		close(done)
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		w.Ingest(kv.Second, producers*each)
		w.Scan(kv.Second)
		for _, hash := range w.Arrived() {
			w.Admit(hash)
		}
	}
	if s := w.Stats(); s.Ready != producers*each || s.Refused != 0 {
		t.Errorf("%d of %d objects are known, %d were refused", s.Ready, producers*each, s.Refused)
	}
}

// What a producer wrote exists when its key is claimed. Until then it is only being
// written.
func TestUnclaimedIsBusy(t *testing.T) {
	w, heap, _ := open(t, 1<<20, arena.Options{}, Options{})
	key := []byte("k")
	r, err := heap.Reserve(arena.HashKey(key), 64, len(key), arena.PageSize)
	if err != nil || !heap.Write(&r, key, make([]byte, 64)) {
		t.Fatal("not written", err)
	}
	w.Scan(0)
	for _, want := range []error{ErrBusy, ErrExists} {
		if _, err := w.Reserve(0, Put{Key: key, Bytes: 1}); !errors.Is(err, want) {
			t.Errorf("a second writer is told %v, want %v", err, want)
		}
		w.admitAll()
	}
}

// What came without sums is not found before it is summed, which takes long: it is
// being written meanwhile, and keeps its room.
func TestWithoutSums(t *testing.T) {
	w, heap, memory := open(t, 1<<20, arena.Options{}, Options{})
	key, value := []byte("k"), bytes.Repeat([]byte("v"), 5000)
	r, err := heap.Reserve(arena.HashKey(key), uint64(len(value)), len(key), 8192)
	if err != nil || !heap.Write(&r, key, value) {
		t.Fatal("not written", err)
	}
	at := heap.HeaderOffset(r.Index)
	binary.LittleEndian.PutUint32(memory[at+48:], arena.Unchecked)
	binary.LittleEndian.PutUint64(memory[at+56:], 1) // no checksum
	w.Scan(0)
	if arrived := w.Arrived(); len(arrived) != 1 || w.Admit(arrived[0]) {
		t.Fatalf("%d came, and could be found unsummed", len(arrived))
	}
	if header := heap.Load(r.Index); header.Flags&arena.Unchecked == 0 {
		t.Error("who maps the arena is told that it is checked")
	}
	plan, unsummed := w.Unsummed(arena.HashKey(key))
	if !unsummed || plan.Bytes != uint64(len(value)) || plan.PageSize != 8192 {
		t.Fatalf("%+v, %v", plan, unsummed)
	}
	if _, again := w.Unsummed(arena.HashKey(key)); again || w.RemoveHash(arena.HashKey(key)) {
		t.Error("it was given out twice, or taken away while it is summed")
	}
	if err := w.Commit(0, plan, heap.SumPayload(plan.Offset, plan.Bytes)); err != nil {
		t.Fatal(err)
	}
	found, err := w.Locate(0, key)
	got := make([]byte, len(value))
	if err == nil {
		err = heap.Read(arena.Wanted{Index: found.Header, Epoch: found.Epoch, Key: key}, got, 0)
	}
	if err != nil || !bytes.Equal(got, value) || w.Stats().Writing != 0 {
		t.Errorf("%v, %d are being written", err, w.Stats().Writing)
	}
}

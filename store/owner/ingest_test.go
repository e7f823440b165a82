package owner

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"meridian/kv"
	"meridian/store/arena"
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

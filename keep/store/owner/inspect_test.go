package owner

import (
	"errors"
	"fmt"
	"testing"

	"meridian/keep/store/arena"
)

// What is pinned stays while everything else leaves, no more than a part of the heap can
// be, and what is let go leaves in its turn.
func TestPinnedStays(t *testing.T) {
	w, heap, _ := open(t, 1<<20, arena.Options{}, Options{MaxPinned: 0.25})
	put := func(key string) {
		p, err := w.Reserve(0, Put{Key: []byte(key), Bytes: 32 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Commit(0, p, sum(heap, p)); err != nil {
			t.Fatal(err)
		}
	}
	var pinned []string
	for n := range 8 {
		key := fmt.Sprint("kept-", n)
		put(key)
		err := w.SetPinned([]byte(key), true)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pinned = append(pinned, key)
	}
	if len(pinned) == 0 || len(pinned) == 8 || w.Pinned() > w.PinnedMost() {
		t.Fatalf("%d are pinned, of %d bytes; at most %d", len(pinned), w.Pinned(), w.PinnedMost())
	}
	for n := range 200 {
		put(fmt.Sprint("other-", n))
	}
	for _, key := range pinned {
		if o, is := w.Inspect(0, []byte(key)); !is || !o.Pinned {
			t.Errorf("%s is %+v, there: %v", key, o, is)
		}
		if err := w.SetPinned([]byte(key), false); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 200 {
		put(fmt.Sprint("another-", n))
	}
	for _, key := range pinned {
		if w.Has([]byte(key)) {
			t.Errorf("%s was let go and is there", key)
		}
	}
	if w.Pinned() != 0 {
		t.Errorf("%d bytes are pinned", w.Pinned())
	}
	if err := w.SetPinned([]byte(pinned[0]), true); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v", err)
	}
}

package owner

import (
	"testing"

	"meridian/keep/store/arena"
	"meridian/kv"
)

// What is passed over so that an object is aligned comes back, too.
func TestAlignmentIsGivenBack(t *testing.T) {
	w, _, _ := open(t, 1<<20, arena.Options{}, Options{WriteTimeout: kv.Second})
	for i, size := range []uint64{100, 3 * arena.Segment, 100} {
		p, err := w.Reserve(0, Put{Key: []byte{byte(i + 1)}, Bytes: size})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Abort(p); err != nil {
			t.Fatal(err)
		}
	}
	w.Scan(3 * kv.Second)
	if used := w.Stats().HeapUsed; used != 0 {
		t.Errorf("nothing is kept, and %d bytes are used", used)
	}
}

// A header comes back whose producer died before it wrote a word there, or wrote
// what is not so.
func TestHeadersAreGivenBack(t *testing.T) {
	w, heap, _ := open(t, 1<<20, arena.Options{Headers: 3}, Options{WriteTimeout: kv.Second})
	w.Scan(0)
	for i := range uint32(3) {
		if _, ok := heap.TakeHeader(); !ok {
			t.Fatal("no header")
		}
		if i > 0 {
			heap.Place(i, &arena.Header{PayloadBase: uint64(i) << 40, Word: arena.MakeWord(arena.Writing, i)})
		}
	}
	for _, c := range []struct {
		at   kv.Instant
		free bool
	}{{kv.Second, false}, {2 * kv.Second, false}, {3 * kv.Second, true}} {
		w.Scan(c.at)
		if _, err := w.Reserve(c.at, Put{Key: []byte("k"), Bytes: 1}); (err == nil) != c.free {
			t.Errorf("after %v: %v", c.at, err)
		}
	}
}

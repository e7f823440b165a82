package owner

import (
	"testing"

	"meridian/kv"
	"meridian/store/arena"
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

package owner

import (
	"testing"

	"meridian/keep/store/arena"
)

// A scan takes in no more objects at a time than it may, and those that follow the rest.
func TestScansGoOn(t *testing.T) {
	const count = 3*maxCame + 10
	w, heap, _ := open(t, count*512, arena.Options{Headers: count}, Options{})
	for n := range count {
		key := numbered(n)
		r, err := heap.Reserve(arena.HashKey(key), 8, len(key), arena.PageSize)
		if err != nil {
			t.Fatal(err)
		}
		if !heap.Seal(&r, key) {
			t.Fatalf("object %d was taken back", n)
		}
	}
	scans, came := 0, 0
	for over := false; !over; scans++ {
		over = w.Scan(0)
		if n := len(w.Arrived()); n > maxCame {
			t.Fatalf("%d came in one scan", n)
		} else if came += n; scans > 10 {
			t.Fatal("no end")
		}
	}
	if came != count || scans < 3 {
		t.Errorf("%d of %d objects came, in %d scans", came, count, scans)
	}
	w.Scan(0)
	if n := len(w.Arrived()); n != 0 {
		t.Errorf("%d came again", n)
	}
}

func numbered(n int) []byte { return []byte{'k', byte(n >> 16), byte(n >> 8), byte(n)} }

package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"meridian/keep/store"
)

var sizes = []int{1, 100, 4 << 10, 256 << 10, 256<<10 + 1, 1 << 20, 5<<20 + 3}

func TestPutGetRemove(t *testing.T) {
	for _, fabricName := range []string{"inproc", "tcp", "host"} {
		t.Run(fabricName, func(t *testing.T) {
			c := newCell(t, fabricName)
			a := c.start("a", keeps(64<<20), candidate)
			b := c.start("b", func(o *store.Options) { o.Landing = 2 << 20 }) // less than the largest
			for _, size := range sizes {
				key := fmt.Sprintf("key-%d", size)
				mustPut(t, b, key, size, store.PutOptions{})
				mustGet(t, b, key, size)
				mustGet(t, a, key, size)
				got, err := b.GetBytes(soon(t), key, store.GetOptions{})
				if err != nil || !bytes.Equal(got, value(key, size)) {
					t.Fatalf("wrong bytes, %d of them: %v", len(got), err)
				}
				for _, n := range []*node{a, b} {
					if err := n.Put(soon(t), key, []byte("other"), store.PutOptions{}); !errors.Is(err, store.ErrExists) {
						t.Fatalf("a second put: %v, want ErrExists", err)
					}
					if _, err := n.Get(soon(t), key, make([]byte, size-1), store.GetOptions{}); !errors.Is(err, store.ErrTooSmall) {
						t.Fatalf("too small a buffer: %v, want ErrTooSmall", err)
					}
				}
				if err := b.Remove(soon(t), key, store.RemoveOptions{}); err != nil {
					t.Fatal(err)
				}
				mustMiss(t, a, key)
				mustMiss(t, b, key)
				if err := a.Remove(soon(t), key, store.RemoveOptions{}); !errors.Is(err, store.ErrMissing) {
					t.Fatalf("a second remove: %v, want ErrMissing", err)
				}
				mustPut(t, a, key, size, store.PutOptions{}) // by the owner itself
				mustGet(t, b, key, size)
			}
			if m := b.Metrics(); m.Torn != 0 || m.MessagesBroken != 0 {
				t.Fatalf("%+v", m)
			}
		})
	}
}

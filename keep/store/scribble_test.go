//go:build !race

package store_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"meridian/keep/store"
)

// A reader that writes into its own buffer while it is filled finds what came broken,
// and costs no other reader the object. (It is a race by design.)
func TestAReaderThatScribblesCostsNoObject(t *testing.T) {
	for _, f := range []string{"tcp", "host"} {
		t.Run(f, func(t *testing.T) {
			c := newCell(t, f)
			c.start("owner", keeps(64<<20), candidate)
			bad, good := c.start("bad"), c.start("good")
			const size = 4 << 20
			mustPut(t, good, "k", size, store.PutOptions{})
			buffer, err := bad.Buffer(size)
			if err != nil {
				t.Fatal(err)
			}
			var stop atomic.Bool
			var scribbling sync.WaitGroup
			scribbling.Go(func() {
				bytes := buffer.Bytes()
				for i := 0; !stop.Load(); i++ {
					bytes[i*4099%size]++
				}
			})
			failed := 0
			for range 20 {
				if _, err := bad.Get(soon(t), "k", buffer.Bytes()[:size], store.GetOptions{}); err != nil {
					failed++
				}
				if _, err := good.Get(soon(t), "k", make([]byte, size), store.GetOptions{}); err != nil {
					t.Errorf("after %d broken reads, a good reader: %v", failed, err)
					break
				}
			}
			stop.Store(true)
			scribbling.Wait()
			if failed == 0 {
				t.Log("no read was broken")
			}
		})
	}
}

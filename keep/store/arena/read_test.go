package arena

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A header and its extent are used again and again, by objects of one key and one
// length, while others read: what they get is one object, the one they asked for.
func TestReadersOfReusedHeaders(t *testing.T) {
	const size, rounds = 16*Segment + 100, 20_000
	h, err := Format(mapped(t, 1<<20), Options{Headers: 16})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("key")
	r, err := put(h, key, make([]byte, size))
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var all sync.WaitGroup
	var read, overtaken atomic.Int64
	for range 2 {
		all.Go(func() {
			dst := make([]byte, size)
			for !done.Load() {
				epoch := h.Word(r.Index).Epoch()
				err := h.Read(Wanted{r.Index, epoch, key}, dst, 0)
				switch {
				case err == nil && bytes.Count(dst, []byte{byte(epoch)}) != size:
					t.Errorf("wrong bytes in epoch %d", epoch)
					return
				case err == nil:
					read.Add(1)
				case errors.Is(err, ErrGone) && strings.Contains(err.Error(), "it was ready"):
					overtaken.Add(1) // while it copied
				case !errors.Is(err, ErrGone):
					t.Errorf("epoch %d: %v", epoch, err)
					return
				}
			}
		})
	}
	payload := make([]byte, size)
	for epoch := uint32(1); epoch < rounds && min(read.Load(), overtaken.Load()) < 10; epoch++ {
		h.Kill(r.Index, epoch-1)
		header := r.Header
		header.Word = MakeWord(Writing, epoch)
		h.Place(r.Index, &header)
		for i := range payload {
			payload[i] = byte(epoch)
		}
		if again := (Reservation{r.Index, header}); !h.Write(&again, key, payload) {
			t.Fatal("the room was taken back")
		}
		for seen := read.Load(); epoch%2 == 0 && read.Load() == seen && !t.Failed(); {
			runtime.Gosched() // every other object is there until it is read
		}
		if t.Failed() {
			break
		}
	}
	done.Store(true)
	all.Wait()
	t.Logf("%d reads, %d overtaken", read.Load(), overtaken.Load())
}

package arena

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"
)

// mapped is memory as arenas have it: outside of Go's heap, all zeros.
func mapped(t testing.TB, size int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// many is an arena with so many small objects; key and payload of each are its
// number.
func many(t testing.TB, count int) ([]byte, *Heap) {
	t.Helper()
	b := mapped(t, count*(HeaderSize+64)+1<<20)
	h, err := Format(b, Options{Headers: uint32(count)})
	if err != nil {
		t.Fatal(err)
	}
	for n := range count {
		name := numbered(n)
		if r, err := put(h, name, name); err != nil || r.Index != uint32(n) {
			t.Fatalf("object %d in header %d: %v", n, r.Index, err)
		}
	}
	return b, h
}

func numbered(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// A million objects have their place, and are found again.
func TestAMillionObjects(t *testing.T) {
	const count = 1_000_000
	b, h := many(t, count)
	if _, err := put(h, []byte("one more"), []byte("payload")); err == nil {
		t.Error("there was a header left")
	}
	again, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	for n := 0; n < count; n += 7 {
		want := Wanted{uint32(n), 0, numbered(n)}
		if err := again.Read(want, got, 0); err != nil || !bytes.Equal(got, want.Key) {
			t.Fatalf("object %d: %x, %v", n, got, err)
		}
	}
}

// What an owner, or a reader that maps an arena, does to find what is there.
func BenchmarkScanOfAMillionHeaders(b *testing.B) {
	const count = 1_000_000
	_, h := many(b, count)
	for b.Loop() {
		ready := 0
		for i := range h.UsedHeaders() {
			header := h.Load(i)
			if header.Word.State() == Ready && header.Check(h.Bounds()) == nil && HashKey(h.Key(&header)) == header.KeyHash {
				ready++
			}
		}
		if ready != count {
			b.Fatalf("%d of %d objects", ready, count)
		}
	}
}

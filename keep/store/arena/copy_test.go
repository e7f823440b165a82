package arena

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"meridian/move/checksum"

	"pgregory.net/rapid"
)

func noise(seed uint64, size int) []byte {
	b := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = random.Read(b)
	return b
}

// What is copied in is what was given, with the sums that SumPayload writes, and
// nothing beside them changes.
func TestCopyInIsCopyAndSum(t *testing.T) {
	h := format(t, 4<<20, Options{})
	base := h.Bounds().Base
	rapid.Check(t, func(t *rapid.T) {
		payload := noise(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 200<<10).Draw(t, "bytes"))
		e := ExtentOf(uint64(len(payload)), 0)
		around := h.b[base : base+1<<20]
		for i := range around {
			around[i] = 0xa5
		}
		sum := h.CopyIn(base+Segment, payload)
		var d checksum.Digest
		d.Add(payload)
		if want := d.Sum(); sum != want {
			t.Fatalf("checksum %x, that of links is %x", sum, want)
		}
		copied := bytes.Clone(around)
		if h.SumPayload(base+Segment, uint64(len(payload))) != sum || !bytes.Equal(around, copied) {
			t.Fatal("the sums of what lies there are others")
		}
		sums := bytes.Clone(around[Segment+e.Sums : Segment+e.Key])
		clear(around[Segment+e.Sums : Segment+e.Key])
		if h.PutSums(base+Segment, uint64(len(payload)), sums) != sum || !bytes.Equal(around, copied) {
			t.Fatal("sums that are put are others")
		}
		if !bytes.Equal(copied[Segment:][:len(payload)], payload) {
			t.Fatal("other bytes lie there")
		}
		for i := range copied[Segment:][len(payload):e.Sums] {
			if copied[Segment+len(payload)+i] != 0xa5 {
				t.Fatal("the padding changed")
			}
		}
		if bytes.Count(copied[:Segment], []byte{0xa5}) != Segment || bytes.Count(copied[Segment+e.Key:], []byte{0xa5}) != len(copied)-Segment-int(e.Key) {
			t.Fatal("something outside of payload and sums changed")
		}
	})
}

// A copy says which segment differs; a slice sees only what it holds, and the sums.
func TestCopyOutNamesTheSegment(t *testing.T) {
	h := format(t, 8<<20, Options{})
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 2<<20).Draw(t, "bytes")
		payload := noise(uint64(size), size)
		header := Header{PayloadBase: h.Bounds().Base, Bytes: uint64(size)}
		header.Checksum = h.CopyIn(header.PayloadBase, payload)
		segments := int(Segments(header.Bytes))
		first := rapid.IntRange(0, segments-1).Draw(t, "first")
		last := rapid.IntRange(first, segments-1).Draw(t, "last")
		from, to := first*Segment, min(size, (last+1)*Segment)

		whole, slice := make([]byte, size), make([]byte, to-from)
		if err := h.CopyOut(whole, header.PayloadBase, header.Checksum); err != nil || !bytes.Equal(whole, payload) {
			t.Fatalf("whole: %v", err)
		}
		if err := h.CopySlice(slice, &header, uint64(from)); err != nil || !bytes.Equal(slice, payload[from:to]) {
			t.Fatalf("slice: %v", err)
		}

		flip := rapid.IntRange(0, size-1).Draw(t, "flip")
		h.b[int(header.PayloadBase)+flip] ^= 0x10
		named := fmt.Sprintf("segment %d", flip/Segment)
		if err := h.CopyOut(whole, header.PayloadBase, header.Checksum); !errors.Is(err, ErrTorn) || !strings.HasSuffix(err.Error(), named) {
			t.Fatalf("whole, flipped in %s: %v", named, err)
		}
		err := h.CopySlice(slice, &header, uint64(from))
		if within := flip >= from && flip < to; within != errors.Is(err, ErrTorn) || within && !strings.HasSuffix(err.Error(), named) {
			t.Fatalf("slice from %d to %d, flipped in %s: %v", from, to, named, err)
		}
		h.b[int(header.PayloadBase)+flip] ^= 0x10

		sums := int(header.PayloadBase + header.Extent().Sums)
		h.b[sums+rapid.IntRange(0, 8*segments-1).Draw(t, "sum")] ^= 1
		if err := h.CopySlice(slice, &header, uint64(from)); !errors.Is(err, ErrTorn) {
			t.Fatalf("slice, another sum: %v", err)
		}
	})
}

func TestSliceIsWholeSegments(t *testing.T) {
	h := format(t, 1<<20, Options{})
	header := Header{PayloadBase: h.Bounds().Base, Bytes: 10000}
	header.Checksum = h.CopyIn(header.PayloadBase, noise(1, 10000))
	for _, c := range []struct {
		from, size uint64
		good       bool
	}{
		{0, 10000, true},
		{0, 8192, true},
		{4096, 5904, true},
		{8192, 1808, true},
		{0, 100, false},
		{8192, 1807, false},
		{8192, 1809, false},
		{1, 4096, false},
		{12288, 4096, false},
		{^uint64(4095), 8192, false},
	} {
		if err := h.CopySlice(make([]byte, c.size), &header, c.from); (err == nil) != c.good {
			t.Errorf("%d bytes from %d on: %v", c.size, c.from, err)
		}
	}
}

// Copies beside a plain one. Each round takes another pair of buffers, as objects
// do that come one after the other.
func BenchmarkCopy(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		need := int(ExtentOf(uint64(size), 0).Size)
		rooms := max(2, min(16, 64<<20/need))
		h := format(b, (rooms+4)*need+2<<20, Options{Headers: 16})
		outside := noise(1, rooms*size)
		sums := make([]uint64, rooms)
		base := h.Bounds().Base
		for n := range rooms {
			sums[n] = h.CopyIn(base+uint64(n*need), outside[n*size:(n+1)*size])
		}
		run := func(name string, copyOne func(n int, at uint64, outside []byte)) {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(size))
				for n := 0; b.Loop(); n = (n + 1) % rooms {
					copyOne(n, base+uint64(n*need), outside[n*size:(n+1)*size])
				}
			})
		}
		run("plain", func(_ int, at uint64, outside []byte) { copy(h.b[at:], outside) })
		run("in", func(_ int, at uint64, outside []byte) { h.CopyIn(at, outside) })
		run("out", func(n int, at uint64, outside []byte) {
			if err := h.CopyOut(outside, at, sums[n]); err != nil {
				b.Fatal(err)
			}
		})
		run("sum", func(_ int, at uint64, _ []byte) { h.SumPayload(at, uint64(size)) })
	}
}

package arena

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"meridian/move/checksum"

	"pgregory.net/rapid"
)

// memory is zeros, aligned as a mapping is to eight bytes at least.
func memory(size int) []byte {
	words := make([]uint64, size/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
}

func format(t testing.TB, size int, o Options) *Heap {
	t.Helper()
	h, err := Format(memory(size), o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Records are as long as their fields, which stand one behind the other.
func TestLayoutHasNoGaps(t *testing.T) {
	for _, r := range Layout {
		at := 0
		for _, f := range r.Fields {
			if f.Offset != at || f.Offset%min(f.Size, 8) != 0 {
				t.Errorf("%s.%s stands at %d, want %d", r.Name, f.Name, f.Offset, at)
			}
			at += f.Size
		}
		if at != r.Size {
			t.Errorf("%s ends at %d, want %d", r.Name, at, r.Size)
		}
	}
}

func TestHeaderIsItsFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b [HeaderSize]byte
		copy(b[:], rapid.SliceOfN(rapid.Byte(), HeaderSize, HeaderSize).Draw(t, "bytes"))
		h := ParseHeader(&b)
		if got := h.AppendTo(nil); !bytes.Equal(got, b[:]) {
			t.Fatalf("%x became %x", b, got)
		}
	})
}

// put stores an object as a producer does, without the owner.
func put(h *Heap, key, payload []byte) (Reservation, error) {
	r, err := h.Reserve(HashKey(key), uint64(len(payload)), len(key), PageSize)
	if err != nil {
		return r, err
	}
	if !h.Write(&r, key, payload) {
		return r, errors.New("the room was taken back")
	}
	return r, nil
}

func wanted(r *Reservation, key []byte) Wanted { return Wanted{r.Index, r.Header.Word.Epoch(), key} }

func TestWhatIsPutIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, err := Format(memory(8<<20), Options{})
		if err != nil {
			t.Fatal(err)
		}
		payload := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.IntRange(1, 1<<20).Draw(t, "bytes"))
		key := rapid.SliceOfN(rapid.Byte(), 1, MaxKey).Draw(t, "key")
		r, err := put(h, key, payload)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(payload))
		if err := h.Read(wanted(&r, key), got, 0); err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("read: %v", err)
		}
		var d checksum.Digest
		d.Add(payload)
		if sum := d.Sum(); sum != r.Header.Checksum {
			t.Fatalf("checksum %x, that of links is %x", r.Header.Checksum, sum)
		}
		if err := h.Read(wanted(&r, append(key, 1)), got, 0); !errors.Is(err, ErrForeign) {
			t.Fatalf("another key: %v", err)
		}
		if err := h.Read(Wanted{r.Index, r.Header.Word.Epoch() + 1, key}, got, 0); !errors.Is(err, ErrGone) {
			t.Fatalf("another epoch: %v", err)
		}
		if err := h.Read(Wanted{h.Headers(), 0, key}, got, 0); !errors.Is(err, ErrGone) {
			t.Fatalf("no such header: %v", err)
		}
		from := r.Header.Bytes / 2 / Segment * Segment
		if err := h.Read(wanted(&r, key), got[from:], from); err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("the second half: %v", err)
		}
		flip := rapid.IntRange(0, len(payload)-1).Draw(t, "flip")
		h.Payload(&r)[flip] ^= 1
		if err := h.Read(wanted(&r, key), got, 0); !errors.Is(err, ErrTorn) {
			t.Fatalf("a flipped byte: %v", err)
		}
		h.Swap(r.Index, r.Header.Word, MakeWord(Dead, r.Header.Word.Epoch()))
		if err := h.Read(wanted(&r, key), got, 0); !errors.Is(err, ErrGone) {
			t.Fatalf("a dead object: %v", err)
		}
	})
}

// A key whose hash is another's is not served for it.
func TestCollisionIsForeign(t *testing.T) {
	h := format(t, 1<<20, Options{})
	key := []byte("one")
	r, err := put(h, key, []byte("payload"))
	if err != nil {
		t.Fatal(err)
	}
	header := h.Load(r.Index)
	header.KeyHash = HashKey([]byte("two"))
	h.store(r.Index, &header)
	if err := h.Read(wanted(&r, []byte("two")), make([]byte, 7), 0); !errors.Is(err, ErrForeign) {
		t.Errorf("read: %v", err)
	}
}

// Producers that race for room never get the same.
func TestProducersGetRoomOfTheirOwn(t *testing.T) {
	h := format(t, 32<<20, Options{Headers: 4000})
	for i := range uint32(200) {
		at, ok := h.TakeBump(16<<10, Segment)
		index, there := h.TakeHeader()
		if !ok || !there || index != i {
			t.Fatal("no room to offer")
		}
		h.Offer(ClassOf(16<<10), index, at, 16<<10, 5)
	}
	var all sync.WaitGroup
	var got [8][]Reservation
	for p := range got {
		all.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(p)))
			for {
				key := fmt.Appendf(nil, "%d/%d", p, len(got[p]))
				payload := bytes.Repeat([]byte{byte(p)}, 1+random.IntN(40<<10))
				r, err := put(h, key, payload)
				if err != nil {
					return
				}
				a := h.AnnounceOf(&r, 3)
				h.Tell(&a)
				got[p] = append(got[p], r)
			}
		})
	}
	all.Wait()
	headers, count, offered := map[uint32]bool{}, 0, 0
	for p, rs := range got {
		for n, r := range rs {
			if headers[r.Index] {
				t.Fatalf("header %d was given out twice", r.Index)
			}
			headers[r.Index] = true
			if r.Header.Word.Epoch() == 5 {
				offered++
			}
			b := make([]byte, r.Header.Bytes)
			if err := h.Read(wanted(&r, fmt.Appendf(nil, "%d/%d", p, n)), b, 0); err != nil || bytes.Count(b, []byte{byte(p)}) != len(b) {
				t.Fatalf("object %d of producer %d: %v", n, p, err)
			}
			count++
		}
	}
	if count < 500 || offered == 0 {
		t.Errorf("%d objects, %d of them in what was offered", count, offered)
	}
	heard := 0
	for a, ok := h.Hear(); ok; a, ok = h.Hear() {
		i, err := h.HeaderAt(a.HeaderOff)
		if err != nil || !headers[i] || h.Load(i).KeyHash != a.KeyHash || a.Owner != 3 {
			t.Fatalf("announced: %+v: %v", a, err)
		}
		heard++
	}
	if want := min(count, 1024); heard != want {
		t.Errorf("%d announcements of %d", heard, want)
	}
}

func TestRingIsBounded(t *testing.T) {
	h := format(t, 1<<20, Options{Ring: 4})
	for round := range 5 {
		for n := range 6 {
			if ok := h.Tell(&Announce{KeyHash: uint64(round*10 + n + 1)}); ok != (n < 4) {
				t.Fatalf("round %d: announcement %d: %v", round, n, ok)
			}
		}
		for n := range 4 {
			if a, ok := h.Hear(); !ok || a.KeyHash != uint64(round*10+n+1) {
				t.Fatalf("round %d: heard %+v, %v", round, a, ok)
			}
		}
	}
	// A producer takes a place and dies.
	h.u32(ctlRingHead).Add(1)
	h.Tell(&Announce{KeyHash: 9})
	if a, ok := h.Hear(); ok {
		t.Fatalf("heard %+v", a)
	}
	h.Skip()
	if a, ok := h.Hear(); !ok || a.KeyHash != 9 {
		t.Errorf("heard %+v, %v", a, ok)
	}
}

func TestFullArenaSaysSo(t *testing.T) {
	h := format(t, 1<<20, Options{Headers: 16})
	for n := range 16 {
		if _, err := put(h, []byte{1, byte(n)}, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := put(h, []byte{2}, make([]byte, 100)); !errors.Is(err, ErrFull) {
		t.Errorf("no header left: %v", err)
	}
	h = format(t, 1<<20, Options{})
	h.SetUsed(96)
	if _, err := put(h, []byte{2}, make([]byte, 100)); !errors.Is(err, ErrFull) {
		t.Errorf("above the watermark: %v", err)
	}
	h.SetUsed(0)
	if _, err := put(h, []byte{2}, make([]byte, 2<<20)); err == nil {
		t.Error("an object larger than the arena was taken")
	}
}

// Whatever others write into an arena, no reader or writer goes outside, and what
// is read is what was put, or an error.
func FuzzScribbledArena(f *testing.F) {
	f.Add(uint64(1), []byte{0, 0, 255, 255})
	f.Add(uint64(2), []byte("\x10\x00\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, seed uint64, scribble []byte) {
		b := memory(256 << 10)
		h, err := Format(b, Options{Headers: 32, Ring: 8})
		if err != nil {
			t.Fatal(err)
		}
		key, payload := []byte("key"), bytes.Repeat([]byte("payload."), 1000)
		r, err := put(h, key, payload)
		if err != nil {
			t.Fatal(err)
		}
		a := h.AnnounceOf(&r, 0)
		h.Tell(&a)
		random := rand.New(rand.NewPCG(seed, 1))
		for len(scribble) > 0 { // mostly where control, headers and ring are
			at := random.Uint64N(8 << 10)
			n := min(len(scribble), 8)
			copy(b[at:], scribble[:n])
			scribble = scribble[n:]
		}
		got := make([]byte, len(payload))
		if err := h.Read(wanted(&r, key), got, 0); err == nil && !bytes.Equal(got, payload) {
			t.Error("other bytes were read")
		}
		for n := range 20 {
			_, _ = put(h, binary.LittleEndian.AppendUint32(nil, uint32(n)), payload)
			if a, ok := h.Hear(); ok {
				_, _ = h.HeaderAt(a.HeaderOff)
			}
		}
		for i := range h.Headers() {
			header := h.Load(i)
			_ = header.Check(h.Bounds())
			_ = h.Read(Wanted{i, header.Word.Epoch(), key}, got, 0)
		}
		if again, err := Open(b); err == nil {
			for i := range again.Headers() {
				_ = again.Read(Wanted{i, again.Word(i).Epoch(), key}, got, 0)
			}
			_, _ = put(again, key, payload)
			_, _ = again.Hear()
		}
	})
}

// Allocation by a producer: from what was never given out, and from a free list,
// which the owner fills again.
func BenchmarkReserve(b *testing.B) {
	const room = 1 << 16
	h := format(b, 64<<20, Options{Headers: room})
	b.Run("bump", func(b *testing.B) {
		for b.Loop() {
			if _, err := h.Reserve(1, 200, 16, PageSize); err != nil {
				h.Repair(h.bounds.Base, 0)
				clear(h.b[h.headers.base:h.ring.base])
			}
		}
	})
	b.Run("list", func(b *testing.B) {
		at, i := h.bounds.Base, uint32(0)
		for b.Loop() {
			h.Offer(0, i, at, Segment, 1)
			if _, err := h.Reserve(1, 200, 16, PageSize); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) { // reserve, write 4 KiB, announce, hear
		h := format(b, 64<<20, Options{})
		key, payload := []byte("key of sixteen b"), noise(1, 4<<10)
		for b.Loop() {
			h.Offer(1, 0, h.bounds.Base, ClassBytes(1), 1)
			r, err := put(h, key, payload)
			if err != nil {
				b.Fatal(err)
			}
			a := h.AnnounceOf(&r, 0)
			if _, ok := h.Hear(); !h.Tell(&a) && !ok {
				b.Fatal("not heard")
			}
		}
	})
}

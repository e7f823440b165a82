package arena

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"meridian/keep/store/extent"
)

// Heap is an arena that is mapped here. Its numbers were checked when it was
// opened and are kept apart: whatever is written into the arena later, no
// method reads or writes outside.
type Heap struct {
	b       []byte
	bounds  Bounds
	headers table
	ring    table
	lost    atomic.Uint64 // compare-and-swaps of this process that another was faster at
}

// table is a row of records.
type table struct {
	base  uint64
	count uint32
}

// Options shape an arena that is formatted.
type Options struct {
	// Headers is how many objects there can be; default one for each 64 KiB.
	Headers uint32
	// Ring is how many announcements can wait, a power of two; default 1024.
	Ring uint32
	// Epoch is the arena's.
	Epoch uint32
	// High and Low are watermarks in per cent; default 95 and 85.
	High, Low uint32
}

// ErrLayout means that the memory holds no arena, or one that cannot be used.
var ErrLayout = errors.New("arena: not an arena of this layout")

const maxHeaders = 1 << 28

func (o Options) withDefaults(size uint64) Options {
	o.Headers = cmp.Or(o.Headers, uint32(min(maxHeaders, max(16, size/(64<<10)))))
	o.Ring = cmp.Or(o.Ring, 1024)
	o.High = cmp.Or(o.High, 95)
	o.Low = cmp.Or(o.Low, 85)
	return o
}

// Format makes an arena of memory that is all zeros.
func Format(b []byte, o Options) (*Heap, error) {
	o = o.withDefaults(uint64(len(b)))
	if o.Ring&(o.Ring-1) != 0 || o.Low >= o.High || o.High > 100 || o.Headers > maxHeaders {
		return nil, fmt.Errorf("arena: %d headers, ring of %d, watermarks %d and %d: at most %d headers, a power of two, low below high", o.Headers, o.Ring, o.High, o.Low, maxHeaders)
	}
	headers := uint64(Segment)
	ring := headers + HeaderSize*uint64(o.Headers)
	heap := extent.RoundUp(ring+AnnounceSize*uint64(o.Ring), Segment)
	limit := uint64(len(b)) &^ (Segment - 1)
	if limit < heap+Segment {
		return nil, fmt.Errorf("arena: %d bytes are too few for %d headers, a ring of %d and one extent", len(b), o.Headers, o.Ring)
	}
	h := &Heap{b: b}
	for at, v := range map[uint64]uint64{ctlHeapBase: heap, ctlHeapLimit: limit, ctlBump: heap, ctlHeaderBase: headers, ctlRingBase: ring} {
		h.u64(at).Store(v)
	}
	for at, v := range map[uint64]uint32{
		ctlHeaderCount: o.Headers, ctlRingCapacity: o.Ring, ctlEpoch: o.Epoch, ctlWaterHigh: o.High, ctlWaterLow: o.Low,
	} {
		h.u32(at).Store(v)
	}
	h.u32(ctlLayout).Store(Version) // last: without it there is no arena
	return Open(b)
}

// Open looks at an arena that was formatted, here or elsewhere.
func Open(b []byte) (*Heap, error) {
	size := uint64(len(b))
	if size < Segment || uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrLayout, size)
	}
	h := &Heap{b: b}
	if v := h.u32(ctlLayout).Load(); v != Version {
		return nil, fmt.Errorf("%w: layout %d, want %d", ErrLayout, v, Version)
	}
	h.bounds = Bounds{Base: h.u64(ctlHeapBase).Load(), Limit: h.u64(ctlHeapLimit).Load()}
	h.headers = table{h.u64(ctlHeaderBase).Load(), h.u32(ctlHeaderCount).Load()}
	h.ring = table{h.u64(ctlRingBase).Load(), h.u32(ctlRingCapacity).Load()}
	switch {
	case !h.headers.within(HeaderSize, HeaderSize, size) || h.headers.count > maxHeaders:
		return nil, fmt.Errorf("%w: %d headers at %d of %d bytes", ErrLayout, h.headers.count, h.headers.base, size)
	case !h.ring.within(AnnounceSize, 8, size) || h.ring.count&(h.ring.count-1) != 0:
		return nil, fmt.Errorf("%w: a ring of %d at %d of %d bytes", ErrLayout, h.ring.count, h.ring.base, size)
	case h.bounds.Base%Segment != 0 || h.bounds.Base < Segment || h.bounds.Limit > size || h.bounds.Base >= h.bounds.Limit:
		return nil, fmt.Errorf("%w: extents from %d to %d of %d bytes", ErrLayout, h.bounds.Base, h.bounds.Limit, size)
	}
	return h, nil
}

// within reports whether the records lie behind the control block, aligned, and
// within so many bytes.
func (t table) within(record, align, size uint64) bool {
	return t.count > 0 && t.base >= Segment && t.base%align == 0 && t.base <= size && uint64(t.count) <= (size-t.base)/record
}

func (h *Heap) u64(at uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&h.b[at : at+8][0]))
}

func (h *Heap) u32(at uint64) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&h.b[at : at+4][0]))
}

// Bounds is where extents lie.
func (h *Heap) Bounds() Bounds { return h.bounds }

// Headers is how many there are.
func (h *Heap) Headers() uint32 { return h.headers.count }

// HeaderOffset is where a header lies.
func (h *Heap) HeaderOffset(i uint32) uint64 { return h.headers.base + HeaderSize*uint64(i) }

// HeaderAt is the header that lies at an offset.
func (h *Heap) HeaderAt(offset uint64) (uint32, error) {
	i := (offset - h.headers.base) / HeaderSize
	if offset < h.headers.base || offset%HeaderSize != h.headers.base%HeaderSize || i >= uint64(h.headers.count) {
		return 0, fmt.Errorf("arena: no header at %d", offset)
	}
	return uint32(i), nil
}

// word is the header's, to be compared and swapped.
func (h *Heap) word(i uint32) *atomic.Uint64 { return h.u64(h.HeaderOffset(i) + hdrWord) }

// Word loads a header's, with acquire order.
func (h *Heap) Word(i uint32) Word { return Word(h.word(i).Load()) }

// Swap changes a header's word if it is what it was.
func (h *Heap) Swap(i uint32, from, to Word) bool {
	return h.swap64(h.word(i), uint64(from), uint64(to))
}

// swap64 compares and swaps a word that other processes share, and counts what it loses.
func (h *Heap) swap64(p *atomic.Uint64, from, to uint64) bool {
	if p.CompareAndSwap(from, to) {
		return true
	}
	h.lost.Add(1)
	return false
}

// CASFailures is how many compare-and-swaps of this process another was faster at.
func (h *Heap) CASFailures() uint64 { return h.lost.Load() }

// Load copies a header out, word by word: another may be writing it, and what was
// copied counts only if the word of its state, or the head of its list, is the same
// afterwards.
func (h *Heap) Load(i uint32) Header {
	at := h.HeaderOffset(i)
	word := h.Word(i)
	var copied [HeaderSize]byte
	for n := uint64(0); n < HeaderSize; n += 8 {
		binary.NativeEndian.PutUint64(copied[n:], h.u64(at+n).Load())
	}
	header := ParseHeader(&copied)
	header.Word = word
	return header
}

// store writes all of a header but its word.
func (h *Heap) store(i uint32, header *Header) {
	at := h.HeaderOffset(i)
	b := header.AppendTo(make([]byte, 0, HeaderSize))
	for n := uint64(0); n < HeaderSize; n += 8 {
		if n != hdrWord {
			h.u64(at + n).Store(binary.NativeEndian.Uint64(b[n:]))
		}
	}
}

// Place writes a header, its word last. Only the owner does, with a header that
// no producer has.
func (h *Heap) Place(i uint32, header *Header) {
	h.store(i, header)
	h.word(i).Store(uint64(header.Word))
}

// Kill makes an object DEAD, whatever it was.
func (h *Heap) Kill(i, epoch uint32) { h.word(i).Store(uint64(MakeWord(Dead, epoch))) }

// Touch notes an access, best effort.
func (h *Heap) Touch(i uint32, seconds uint64) { h.u64(h.HeaderOffset(i) + hdrAccess).Store(seconds) }

// SetFlags changes the flags of a header that is the owner's alone to change.
func (h *Heap) SetFlags(i, flags uint32) { h.u32(h.HeaderOffset(i) + hdrFlags).Store(flags) }

// Bump is where what was never given out begins: no further than the limit,
// whatever was written there.
func (h *Heap) Bump() uint64 { return min(h.u64(ctlBump).Load(), h.bounds.Limit) }

// TakeBump gives out so many bytes that were never given out before.
func (h *Heap) TakeBump(size, align uint64) (uint64, bool) {
	bump := h.u64(ctlBump)
	for {
		was := bump.Load()
		at := extent.RoundUp(was, max(align, extent.Granule))
		if was < h.bounds.Base || at < was || at > h.bounds.Limit || size > h.bounds.Limit-at {
			return 0, false
		}
		if h.swap64(bump, was, at+extent.RoundUp(size, extent.Granule)) {
			return at, true
		}
	}
}

// TakeHeader gives out a header that was never used.
func (h *Heap) TakeHeader() (uint32, bool) {
	head := h.u32(ctlHeaderHead)
	for {
		was := head.Load()
		if was >= h.headers.count {
			return 0, false
		}
		if head.CompareAndSwap(was, was+1) {
			return was, true
		}
		h.lost.Add(1)
	}
}

// UsedHeaders is how many headers were ever given out.
func (h *Heap) UsedHeaders() uint32 { return min(h.u32(ctlHeaderHead).Load(), h.headers.count) }

// Repair puts back what an owner knows to have been given out, after a producer has
// written something else.
func (h *Heap) Repair(bump uint64, headers uint32) {
	h.u64(ctlBump).Store(bump)
	h.u32(ctlHeaderHead).Store(headers)
}

// SetUsed tells producers how full the heap is, in per cent.
func (h *Heap) SetUsed(percent uint32) { h.u32(ctlUsed).Store(percent) }

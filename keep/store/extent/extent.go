// Package extent divides the bytes of an arena: which are free, which are taken,
// and which others may have taken without saying so yet. It is an owner's own
// truth, in private memory; nothing of it lies in the arena.
//
//	0                                                   Grow          size
//	| used | free | used | pending | used |   pending    |    virgin    |
//	           ▲                ▲
//	       Allocate           Claim: a producer announced what it took
//
// Free bytes are kept in bins by size (two levels, as in TLSF: Masmano and
// others, 2004), so that Allocate and Free take the same few steps whatever the
// arena holds. Neighbours that are free become one.
package extent

import (
	"fmt"
	"math/bits"
)

// Granule is the unit of sizes and offsets.
const Granule = 64

// ID names an extent until it is freed.
type ID int32

// None is no extent.
const None ID = -1

type state uint8

const (
	unused state = iota // the record, not the bytes
	free
	used
	pending
)

// extent is a run of bytes with one state. Its neighbours by address are linked,
// and where it is free, its neighbours in its bin.
type extent struct {
	offset, size    uint64
	before, after   ID
	lesser, greater ID // in a bin, or in the list of unused records
	state           state
}

// Allocator divides the first Size bytes of an arena.
type Allocator struct {
	size     uint64
	grown    uint64 // what lies beyond is virgin
	rows     []*row // of extents
	records  ID     // in rows
	spare    ID     // unused records
	last     ID     // by address
	bins     [levels][classes]ID
	coarse   uint64 // levels with a free extent
	fine     [levels]uint16
	pendings runs
	freed    uint64
}

// row is some records: more are made without moving those before, which may be millions.
type row [rowRecords]extent

const rowRecords = 1 << 12

// at is a record. It stays where it is.
func (a *Allocator) at(id ID) *extent { return &a.rows[id/rowRecords][id%rowRecords] }

const (
	classes = 16
	levels  = 50
)

// New makes an allocator of virgin bytes.
func New(size uint64) *Allocator {
	a := &Allocator{size: size &^ (Granule - 1), spare: None, last: None}
	for l := range a.bins {
		for c := range a.bins[l] {
			a.bins[l][c] = None
		}
	}
	return a
}

// FreeBytes is what Allocate could give, were it in one piece.
func (a *Allocator) FreeBytes() uint64 { return a.freed }

// Grown is where the virgin bytes begin.
func (a *Allocator) Grown() uint64 { return a.grown }

// At is where an extent lies.
func (a *Allocator) At(id ID) (offset, size uint64) { return a.at(id).offset, a.at(id).size }

// Grow tells that bytes up to a place are virgin no more. What of them no producer has
// claimed is pending.
func (a *Allocator) Grow(to uint64) error {
	if to < a.grown || to > a.size || to%Granule != 0 {
		return fmt.Errorf("extent: grown to %d; it is at %d of %d, in steps of %d", to, a.grown, a.size, Granule)
	}
	if to == a.grown {
		return nil
	}
	if a.last != None && a.at(a.last).state == pending {
		a.at(a.last).size += to - a.grown
	} else {
		a.pendings.append(a.append(to-a.grown, pending))
	}
	a.grown = to
	return nil
}

// append makes an extent of the next virgin bytes.
func (a *Allocator) append(size uint64, s state) ID {
	id := a.record()
	*a.at(id) = extent{offset: a.grown, size: size, before: a.last, after: None, state: s}
	if a.last != None {
		a.at(a.last).after = id
	}
	a.last = id
	return id
}

// record is an unused one.
func (a *Allocator) record() ID {
	if a.spare == None {
		if a.records%rowRecords == 0 {
			a.rows = append(a.rows, new(row))
		}
		a.records++
		return a.records - 1
	}
	id := a.spare
	a.spare = a.at(id).greater
	return id
}

func (a *Allocator) forget(id ID) {
	*a.at(id) = extent{greater: a.spare}
	a.spare = id
}

// Claim takes bytes that are pending, all of them or a part of one run.
func (a *Allocator) Claim(offset, size uint64) (ID, error) {
	// The first run that ends behind the offset holds it, or none does.
	at, is := a.pendings.search(func(id ID) bool { return a.at(id).offset+a.at(id).size > offset })
	if size == 0 || (offset|size)%Granule != 0 || !is || a.at(a.pendings.get(at)).offset > offset {
		return None, fmt.Errorf("extent: %d bytes at %d were not given out", size, offset)
	}
	id := a.pendings.get(at)
	e := *a.at(id)
	if size > e.size || offset-e.offset > e.size-size {
		return None, fmt.Errorf("extent: %d bytes at %d: only %d at %d were given out", size, offset, e.size, e.offset)
	}
	remains := make([]ID, 0, 2)
	if offset > e.offset {
		remains = append(remains, id)
		id = a.split(id, offset-e.offset)
	}
	if rest := a.at(id).size - size; rest > 0 {
		remains = append(remains, a.split(id, size))
	}
	a.at(id).state = used
	a.pendings.replace(at, remains...)
	return id, nil
}

// Pending are the runs that were given out and that no producer has claimed.
func (a *Allocator) Pending(each func(offset, size uint64)) {
	for id := range a.pendings.all() {
		each(a.At(id))
	}
}

// Reclaim frees a pending run: the producer that took it is dead.
func (a *Allocator) Reclaim(offset, size uint64) error {
	id, err := a.Claim(offset, size)
	if err == nil {
		a.Free(id)
	}
	return err
}

// Allocate takes size bytes at a multiple of align, a power of two, from what
// was freed; None if they are not there.
func (a *Allocator) Allocate(size, align uint64) ID {
	size = RoundUp(max(size, 1), Granule)
	align = max(align, Granule)
	id := a.find(size, align)
	if id == None {
		return None
	}
	a.unlink(id)
	if front := padding(a.at(id).offset, align); front > 0 {
		whole := id
		id = a.split(whole, front)
		a.link(whole)
	}
	if a.at(id).size > size {
		a.link(a.split(id, size))
	}
	a.at(id).state = used
	return id
}

// RoundUp is the first multiple of to, a power of two, that is not below n.
func RoundUp(n, to uint64) uint64 { return (n + to - 1) &^ (to - 1) }

func padding(offset, align uint64) uint64 { return RoundUp(offset, align) - offset }

// tries bounds the search in a bin whose extents may be too small.
const tries = 32

// find is a free extent in which size bytes fit: one of a bin in which all fit, or
// one of the first of its own bin.
func (a *Allocator) find(size, align uint64) ID {
	// The bins above hold extents that fit wherever they lie.
	if id := a.above(size + align - Granule); id != None {
		return id
	}
	for level, class := binOf(size); ; {
		id := a.bins[level][class]
		for n := 0; id != None && n < tries; n++ {
			if e := a.at(id); e.size >= size && padding(e.offset, align) <= e.size-size {
				return id
			}
			id = a.at(id).greater
		}
		if level, class = a.next(level, class+1); level < 0 {
			return None
		}
	}
}

// above is a free extent of the first bin in which each has size bytes.
func (a *Allocator) above(size uint64) ID {
	g := size / Granule
	if g >= classes {
		g += 1<<(bits.Len64(g)-5) - 1
	}
	level, class := binOf(g * Granule)
	if level, class = a.next(level, class); level < 0 {
		return None
	}
	return a.bins[level][class]
}

// next is the first bin from this one on that is not empty, or level -1.
func (a *Allocator) next(level, class int) (int, int) {
	if level >= levels {
		return -1, 0
	}
	if fine := uint32(a.fine[level]) >> class << class; fine != 0 {
		return level, bits.TrailingZeros32(fine)
	}
	coarse := a.coarse >> (level + 1) << (level + 1)
	if coarse == 0 {
		return -1, 0
	}
	level = bits.TrailingZeros64(coarse)
	return level, bits.TrailingZeros16(a.fine[level])
}

// binOf is where a free extent of a size is kept.
func binOf(size uint64) (level, class int) {
	g := size / Granule
	if g < classes {
		return 0, int(g)
	}
	l := bits.Len64(g) - 1
	return l - 3, int(g>>(l-4)) & (classes - 1)
}

// split cuts an extent that is in no bin, and returns the second part, which has
// the same state.
func (a *Allocator) split(id ID, size uint64) ID {
	second := a.record()
	e := a.at(id)
	*a.at(second) = extent{offset: e.offset + size, size: e.size - size, before: id, after: e.after, state: e.state}
	if e.after != None {
		a.at(e.after).before = second
	} else {
		a.last = second
	}
	e.size, e.after = size, second
	return second
}

// Free gives an extent back. Free neighbours become one with it.
func (a *Allocator) Free(id ID) {
	if a.at(id).state != used {
		panic("extent: freed twice")
	}
	if before := a.at(id).before; before != None && a.at(before).state == free {
		a.unlink(before)
		a.merge(before, id)
		id = before
	}
	if after := a.at(id).after; after != None && a.at(after).state == free {
		a.unlink(after)
		a.merge(id, after)
	}
	a.link(id)
}

// merge makes an extent and the one after it one.
func (a *Allocator) merge(id, after ID) {
	e, gone := a.at(id), *a.at(after)
	e.size, e.after = e.size+gone.size, gone.after
	if gone.after != None {
		a.at(gone.after).before = id
	} else {
		a.last = id
	}
	a.forget(after)
}

// link puts an extent into its bin.
func (a *Allocator) link(id ID) {
	e := a.at(id)
	level, class := binOf(e.size)
	first := a.bins[level][class]
	e.state, e.lesser, e.greater = free, None, first
	if first != None {
		a.at(first).lesser = id
	}
	a.bins[level][class] = id
	a.coarse |= 1 << level
	a.fine[level] |= 1 << class
	a.freed += e.size
}

// unlink takes an extent out of its bin.
func (a *Allocator) unlink(id ID) {
	e := a.at(id)
	if e.greater != None {
		a.at(e.greater).lesser = e.lesser
	}
	if e.lesser != None {
		a.at(e.lesser).greater = e.greater
	} else {
		level, class := binOf(e.size)
		if a.bins[level][class] = e.greater; e.greater == None {
			if a.fine[level] &^= 1 << class; a.fine[level] == 0 {
				a.coarse &^= 1 << level
			}
		}
	}
	a.freed -= e.size
}

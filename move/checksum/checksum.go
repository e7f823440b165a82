// Package checksum is the one checksum of KV bytes: of chunks on a link, of what
// is kept. It is a tree of two levels, so that bytes in pieces are hashed where
// they lie, and a GPU can hash the segments of one chunk in parallel:
//
//	bytes   | 4 KiB | 4 KiB | … | rest |
//	           │       │           │
//	sums     XXH3    XXH3   …    XXH3      8 bytes each, little-endian
//	           └───────┴─── XXH3 ──┘       = the checksum
package checksum

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Digest is the checksum of a chunk: XXH3-64 of the XXH3-64s of its segments of
// 4 KiB. Segments are counted in the chunk, not in either side's memory, so that
// two sides that cut the bytes differently agree.
//
// The obvious way, one streaming hash, copies every byte into the hasher's own
// buffer first, which showed as a seventh of all time. A segment that lies in
// one piece is hashed where it lies; only what straddles two pieces is copied.
type Digest struct {
	sums     []byte
	straddle [Segment]byte
	filled   int
}

const (
	// Segment is how many bytes have a sum of their own.
	Segment = 4 << 10
	// SmallChunk is the most that Of takes.
	SmallChunk = 16 << 10
)

// Reset starts a chunk.
func (d *Digest) Reset() { d.sums, d.filled = d.sums[:0], 0 }

// Add takes the next bytes of the chunk.
func (d *Digest) Add(b []byte) {
	if d.filled > 0 {
		n := copy(d.straddle[d.filled:], b)
		b = b[n:]
		if d.filled += n; d.filled < Segment {
			return
		}
		d.note(d.straddle[:])
		d.filled = 0
	}
	for ; len(b) >= Segment; b = b[Segment:] {
		d.note(b[:Segment])
	}
	d.filled = copy(d.straddle[:], b)
}

func (d *Digest) note(whole []byte) {
	d.sums = binary.LittleEndian.AppendUint64(d.sums, xxh3.Hash(whole))
}

// Sum ends the chunk.
func (d *Digest) Sum() uint64 {
	if d.filled > 0 {
		d.note(d.straddle[:d.filled])
		d.filled = 0
	}
	return xxh3.Hash(d.sums)
}

// Sums are those of the chunk's segments, after Sum, until Reset.
func (d *Digest) Sums() []byte { return d.sums }

// Of is the checksum of at most SmallChunk bytes in one piece.
func Of(b []byte) uint64 {
	var sums [8 * (SmallChunk/Segment + 1)]byte
	return OfSums(AppendSums(sums[:0], b[:min(len(b), len(sums)/8*Segment)]))
}

// AppendSums appends the sums of the segments of bytes in one piece: for those who
// keep them, and check a part by them later.
func AppendSums(sums, b []byte) []byte {
	for len(b) > 0 {
		n := min(len(b), Segment)
		sums = binary.LittleEndian.AppendUint64(sums, xxh3.Hash(b[:n]))
		b = b[n:]
	}
	return sums
}

// together is how many bytes AppendCopy copies before it hashes them: source and
// destination of four segments stay in the first cache, and the copy of them is
// long enough that the memory keeps up. One segment at a time took a quarter longer.
const together = 4 * Segment

// AppendCopy copies src to the start of dst and appends the sums of what arrived
// there, in one pass: bytes that are read a second time for their sums cost as
// much as the copy does.
func AppendCopy(sums, dst, src []byte) []byte {
	for len(src) > 0 {
		n := copy(dst[:min(len(src), together)], src)
		sums = AppendSums(sums, dst[:n])
		dst, src = dst[n:], src[n:]
	}
	return sums
}

// OfSums is the checksum of bytes with these sums.
func OfSums(sums []byte) uint64 { return xxh3.Hash(sums) }

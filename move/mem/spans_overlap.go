package mem

import (
	"cmp"
	"math/bits"
	"slices"
)

// Overlaps reports whether some byte is covered twice. As a destination that
// would make the result depend on the order of arrival.
func (s *Spans) Overlaps() bool {
	e, self := s.extent()
	switch {
	case self:
		return true
	case e.ascending:
		return false
	case e.granules() <= min(s.pieces, maxTicked)*granulesPerPiece:
		return s.overlapsByTicking(e)
	}
	return s.overlapsBySorting()
}

// What ticking may cost: 128 bytes to a piece, which are cleared sooner than a
// piece is sorted, and 32 MiB in all.
const (
	granulesPerPiece = 128 * 8
	maxTicked        = 32 << 20 / 128
)

// extent is where spans lie. Every piece begins and ends at a whole number of
// granules from low, and a granule is as large as that allows.
type extent struct {
	low, high uint64
	shift     int  // a granule is 1<<shift bytes
	ascending bool // every run begins at or after the end of the one before
}

func (e extent) granules() uint64 { return (e.high - e.low) >> e.shift }

// extent is found in one pass; self means that a run overlaps itself.
func (s *Spans) extent() (e extent, self bool) {
	if len(s.runs) == 0 {
		return extent{ascending: true}, false
	}
	first := s.runs[0].Offset
	e = extent{low: first, ascending: true}
	end := uint64(0)
	sizes := uint64(0) // all that a granule must divide, or-ed: only the lowest bit counts
	for i := range s.runs {
		r := &s.runs[i]
		if r.Count > 1 && r.Stride < r.Length {
			return extent{}, true
		}
		e.ascending = e.ascending && r.Offset >= end
		end, _ = r.End()
		e.low, e.high = min(e.low, r.Offset), max(e.high, end)
		sizes |= (r.Offset - first) | r.Length | r.Stride
	}
	e.shift = bits.TrailingZeros64(sizes)
	return e, false
}

// overlapsByTicking ticks granules off, one bit each. It pays because blocks are
// aligned: a block is one granule, or a few.
func (s *Spans) overlapsByTicking(e extent) bool {
	ticks := make([]uint64, (e.granules()+63)/64)
	for _, r := range s.runs {
		for i := range r.Count {
			at, left := (r.Offset+i*r.Stride-e.low)>>e.shift, r.Length>>e.shift
			for left > 0 {
				n := min(left, 64-at%64)
				mask := (uint64(1)<<n - 1) << (at % 64)
				if ticks[at/64]&mask != 0 {
					return true
				}
				ticks[at/64] |= mask
				at, left = at+n, left-n
			}
		}
	}
	return false
}

type interval struct{ start, end uint64 }

// overlapsBySorting is for spans that are too odd or too far apart to tick off.
// Long runs are compared as a whole first; those that interleave, as K and V
// heads do, and short ones, which mostly do, need a look at every piece.
func (s *Spans) overlapsBySorting() bool {
	if runs := uint64(len(s.runs)); s.pieces > 4*runs {
		bounds := make([]interval, 0, runs)
		for _, r := range s.runs {
			end, _ := r.End()
			bounds = append(bounds, interval{r.Offset, end})
		}
		if !touching(bounds) {
			return false
		}
	}
	pieces := make([]interval, 0, s.pieces)
	for _, r := range s.runs {
		for i := range r.Count {
			start := r.Offset + i*r.Stride
			pieces = append(pieces, interval{start, start + r.Length})
		}
	}
	return touching(pieces)
}

func touching(list []interval) bool {
	slices.SortFunc(list, func(a, b interval) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(list); i++ {
		if list[i].start < list[i-1].end {
			return true
		}
	}
	return false
}

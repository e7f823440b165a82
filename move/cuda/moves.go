package cuda

import (
	"errors"
	"fmt"
	"math/bits"
)

// Move is Count pieces of Length bytes each, from one place to another. Strides
// may be negative, as wrapped around; a single piece has none.
type Move struct {
	From, To             Pointer
	FromStride, ToStride uint64
	Length, Count        uint64
}

// Moves is a copy, in the order of its bytes. Pieces that are added one after the
// other and lie at equal distances become one Move. The zero Moves is empty and
// ready to use.
type Moves struct {
	list   []Move
	shifts []Shift
	bytes  uint64
}

// Shift is how far from where moves say they are done over again, wrapped around where
// it is backwards: word for word what kernels read.
type Shift struct{ From, To uint64 }

// ErrMoves means that moves are malformed.
var ErrMoves = errors.New("cuda: bad moves")

// Bytes is how many bytes are moved.
func (m *Moves) Bytes() uint64 { return m.bytes }

// Reset makes it empty and keeps its memory.
func (m *Moves) Reset() { m.list, m.shifts, m.bytes = m.list[:0], m.shifts[:0], 0 }

// Repeat has what was added done once for each shift, instead of once, round by round.
// Nothing is added after it.
func (m *Moves) Repeat(shifts []Shift) error {
	hi, total := bits.Mul64(m.bytes, uint64(len(shifts)))
	if hi != 0 || len(shifts) == 0 || len(m.shifts) > 0 {
		return fmt.Errorf("%w: %d bytes %d times, or a second time", ErrMoves, m.bytes, len(shifts))
	}
	m.shifts, m.bytes = append(m.shifts, shifts...), total
	return nil
}

// Add appends one piece.
func (m *Moves) Add(from, to Pointer, length uint64) error {
	return m.AddRun(Move{From: from, To: to, Length: length, Count: 1})
}

// AddRun appends a run of pieces.
func (m *Moves) AddRun(r Move) error {
	hi, total := bits.Mul64(r.Length, r.Count)
	if total == 0 && hi == 0 {
		return nil
	}
	if hi != 0 || m.bytes+total < m.bytes {
		return fmt.Errorf("%w: %d pieces of %d bytes are more than 2^64 bytes", ErrMoves, r.Count, r.Length)
	}
	m.bytes += total
	if r.Count == 1 {
		r.FromStride, r.ToStride = 0, 0
	}
	if n := len(m.list); n == 0 || r.Count > 1 || !m.list[n-1].extend(r) {
		m.list = append(m.list, r)
	}
	return nil
}

// extend makes a single piece part of the run, if it goes on where that left off.
func (r *Move) extend(p Move) bool {
	last := Pointer(r.Count - 1)
	from := p.From - (r.From + last*Pointer(r.FromStride))
	to := p.To - (r.To + last*Pointer(r.ToStride))
	switch {
	case r.Count == 1 && uint64(from) == r.Length && uint64(to) == r.Length:
		r.Length += p.Length
		return true
	case p.Length != r.Length:
		return false
	case r.Count == 1:
		r.FromStride, r.ToStride = uint64(from), uint64(to)
	case uint64(from) != r.FromStride || uint64(to) != r.ToStride:
		return false
	}
	r.Count++
	return true
}

// skip is the run without its first bytes, of which there are fewer than in a piece.
func (r Move) skip(bytes uint64) (rest Move) {
	return Move{From: r.From + Pointer(bytes), To: r.To + Pointer(bytes), Length: r.Length - bytes, Count: 1}
}

// pieces is the run without its first pieces.
func (r Move) without(pieces uint64) Move {
	r.From += Pointer(pieces * r.FromStride)
	r.To += Pointer(pieces * r.ToStride)
	r.Count -= pieces
	return r
}

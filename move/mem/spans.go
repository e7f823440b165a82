package mem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// ErrSpans means that a list of spans is malformed.
var ErrSpans = errors.New("mem: bad span list")

// Run is Count pieces of Length bytes each, Stride apart, the first at Offset.
// A run of one piece has no stride.
type Run struct {
	Offset, Length, Stride, Count uint64
}

// last is the offset of the last piece of a run that fits.
func (r Run) last() uint64 { return r.Offset + r.Stride*(r.Count-1) }

// End is the first offset past the run, or false when it does not fit.
func (r Run) End() (uint64, bool) {
	hi, reach := bits.Mul64(r.Stride, r.Count-1)
	last, carry := bits.Add64(r.Offset, reach, 0)
	end, carry2 := bits.Add64(last, r.Length, 0)
	return end, hi == 0 && carry == 0 && carry2 == 0
}

// Spans says which bytes of a section, in the order in which they are moved.
// Blocks at equal distances cost one Run however many they are; neighbours that
// touch become one piece. The zero Spans is empty and ready to use.
type Spans struct {
	runs   []Run
	bytes  uint64
	pieces uint64
	reach  uint64 // the first offset past all pieces
}

// Add appends the bytes [offset, offset+length). Nothing is added for a length
// of zero.
func (s *Spans) Add(offset, length uint64) error {
	if length == 0 {
		return nil
	}
	if offset+length < offset || s.bytes+length < s.bytes {
		return fmt.Errorf("%w: [%d,+%d) wraps around", ErrSpans, offset, length)
	}
	s.bytes += length
	s.reach = max(s.reach, offset+length)
	if len(s.runs) > 0 && s.runs[len(s.runs)-1].extend(offset, length, &s.pieces) {
		return nil
	}
	s.runs = append(s.runs, Run{Offset: offset, Length: length, Count: 1})
	s.pieces++
	return nil
}

// extend makes the piece part of the run, if it goes on where the run left off.
func (r *Run) extend(offset, length uint64, pieces *uint64) bool {
	switch {
	case r.Count == 1 && offset == r.Offset+r.Length:
		r.Length += length
		return true
	case r.Count == 1 && length == r.Length && offset > r.Offset:
		r.Stride = offset - r.Offset
	case r.Count > 1 && length == r.Length && offset > r.last() && offset-r.last() == r.Stride:
	default:
		return false
	}
	r.Count++
	*pieces++
	return true
}

// AddRun appends a whole run.
func (s *Spans) AddRun(r Run) error {
	if r.Count == 0 || r.Length == 0 {
		return nil
	}
	if r.Count == 1 {
		return s.Add(r.Offset, r.Length)
	}
	end, fits := r.End()
	if !fits {
		return fmt.Errorf("%w: %+v wraps around", ErrSpans, r)
	}
	hi, total := bits.Mul64(r.Length, r.Count)
	if hi != 0 || s.bytes+total < s.bytes {
		return fmt.Errorf("%w: %+v holds more than 2^64 bytes", ErrSpans, r)
	}
	if r.Stride == r.Length {
		return s.Add(r.Offset, total)
	}
	s.runs = append(s.runs, r)
	s.bytes += total
	s.pieces += r.Count
	s.reach = max(s.reach, end)
	return nil
}

// Grow makes room for so many more runs, so that adding them allocates once.
func (s *Spans) Grow(runs int) { s.runs = slices.Grow(s.runs, runs) }

// Bytes is how many bytes the spans cover.
func (s *Spans) Bytes() uint64 { return s.bytes }

// Pieces is how many contiguous pieces they are.
func (s *Spans) Pieces() uint64 { return s.pieces }

// Runs returns the runs; they belong to s.
func (s *Spans) Runs() []Run { return s.runs }

// Same reports whether both are one list of runs, as copies of Spans are: what was found
// out about one is true of the other.
func (s *Spans) Same(as *Spans) bool {
	return len(s.runs) == len(as.runs) && (len(s.runs) == 0 || &s.runs[0] == &as.runs[0])
}

// Equal reports whether both say the same bytes in the same runs.
func (s *Spans) Equal(to *Spans) bool { return s.Same(to) || slices.Equal(s.runs, to.runs) }

// Check reports whether every piece lies within size bytes.
func (s *Spans) Check(size uint64) error {
	if s.reach <= size {
		return nil
	}
	for _, r := range s.runs {
		if end, fits := r.End(); !fits || end > size {
			return fmt.Errorf("%w: %d × [%d,+%d) every %d, in %d bytes", ErrBounds, r.Count, r.Offset, r.Length, r.Stride, size)
		}
	}
	return nil
}

// AppendTo appends the spans in wire form: the number of runs, then for each
// its offset relative to the end of the run before, length, count and, for more
// than one piece, stride; all as varints.
func (s *Spans) AppendTo(b []byte) []byte {
	const usual = 12 // bytes to a run, so that most lists grow b once
	b = slices.Grow(b, usual*len(s.runs)+binary.MaxVarintLen64)
	b = binary.AppendUvarint(b, uint64(len(s.runs)))
	previous := uint64(0)
	for _, r := range s.runs {
		b = binary.AppendVarint(b, int64(r.Offset-previous))
		b = binary.AppendUvarint(b, r.Length)
		b = binary.AppendUvarint(b, r.Count)
		if r.Count > 1 {
			b = binary.AppendUvarint(b, r.Stride)
		}
		previous, _ = r.End()
	}
	return b
}

// ParseSpans reads what AppendTo wrote, from a stranger: at most maxRuns runs,
// each in range. It returns what follows.
func ParseSpans(b []byte, maxRuns int) (Spans, []byte, error) {
	var s Spans
	count, b, err := uvarint(b)
	if err != nil {
		return Spans{}, nil, err
	}
	// Each run takes at least three bytes, so a count cannot promise more runs
	// than there is input for.
	if count > uint64(maxRuns) || count > uint64(len(b)) {
		return Spans{}, nil, fmt.Errorf("%w: %d runs, at most %d", ErrSpans, count, maxRuns)
	}
	s.runs = make([]Run, 0, count)
	previous := uint64(0)
	for range count {
		var zigzag uint64
		if zigzag, b, err = uvarint(b); err != nil {
			return Spans{}, nil, err
		}
		r := Run{Offset: previous + (zigzag>>1 ^ -(zigzag & 1))}
		if r.Length, b, err = uvarint(b); err != nil {
			return Spans{}, nil, err
		}
		if r.Count, b, err = uvarint(b); err != nil {
			return Spans{}, nil, err
		}
		if r.Count > 1 {
			if r.Stride, b, err = uvarint(b); err != nil {
				return Spans{}, nil, err
			}
		}
		if r.Count == 0 || r.Length == 0 {
			return Spans{}, nil, fmt.Errorf("%w: an empty run", ErrSpans)
		}
		if err := s.AddRun(r); err != nil {
			return Spans{}, nil, err
		}
		previous, _ = r.End()
	}
	return s, b, nil
}

// uvarint reads a number. Lists have many, which are waited for before a byte moves, so
// that up to eight bytes are taken at once where there are as many.
func uvarint(b []byte) (uint64, []byte, error) {
	if len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		if last := ^x & 0x8080808080808080; last != 0 { // the first byte without its top bit ends it
			x &= last ^ (last - 1) // and what is before
			x &= 0x7f7f7f7f7f7f7f7f
			x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
			x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
			x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
			return x, b[bits.TrailingZeros64(last)/8+1:], nil
		}
	}
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: cut short", ErrSpans)
	}
	return v, b[n:], nil
}

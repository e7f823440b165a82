package cuda

import (
	"math"
	"slices"
)

// A launch is one run of a kernel: a bounded number of bytes, so that the fence that waits
// for memory to be quiet waits for one launch at most. What the kernel reads is a
// table of three parts:
//
//	rows    where its bytes come from and go to, in strided runs, and a sentinel
//	first   for every segment of 4 KiB the row in which it begins, unless all rows have
//	        as many segments
//	shifts  where the rows are to be done over again
//
// Segments are counted from the first byte of all moves: every launch but the last
// one ends with a segment.
const (
	// Segment is how many bytes have a sum of their own; the wire's checksum
	// counts the same ones.
	Segment = 4 << 10
	// LaunchBytes is the most that one launch moves. Within VRAM that takes 0.1 ms,
	// and to the host 3 ms.
	LaunchBytes = 128 << 20
	// launchRows is how many rows are enough for a launch. It goes on to the end
	// of the segment, in which there are no more rows than bytes.
	launchRows = 16 << 10
	maxRows    = launchRows + Segment + 1
	maxShifts  = 1 << 10

	maxSegments = LaunchBytes / Segment
)

// row is what the kernels read, word for word: Row in kernels.cu.
type row struct {
	from, to             uint64
	fromStride, toStride uint64
	start, length, count uint32
	_                    uint32
}

const rowBytes, shiftBytes = 48, 16

type launch struct {
	rows   []row
	first  []uint32
	shifts []Shift
	bytes  uint64 // of all rounds
	limit  uint64 // where it ends, unless the moves do before
	odd    uint64 // all addresses, strides and lengths, or-ed
	whole  bool   // every segment lies in one piece
	// ragged: the last row's pieces do not end where segments do.
	ragged bool
	// each is how many segments every row has, but for the last one, which may have
	// fewer; 0 where they differ.
	each, last uint64
	// period is how many segments a round has; 0 where there is but one.
	period uint64
}

// begin makes the launch empty; its slices keep their memory.
func (l *launch) begin(limit uint64) {
	*l = launch{rows: l.rows[:0], first: l.first[:0], shifts: l.shifts[:0], limit: limit, whole: true}
}

// add appends a run that does not go beyond the limit. The table of a long list is
// made while the device works, so this must take less time for a row than the device
// does for a block.
func (l *launch) add(r *Move) {
	if l.ragged || l.bytes%Segment != 0 {
		l.whole = false
	}
	size := r.Length * r.Count
	switch index := len(l.rows); {
	case index == 0:
		l.each = size / Segment
	case l.last != l.each*Segment:
		l.each = 0
	}
	l.rows = append(l.rows, row{
		from: uint64(r.From), to: uint64(r.To), fromStride: r.FromStride, toStride: r.ToStride,
		start: uint32(l.bytes), length: uint32(r.Length), count: uint32(r.Count),
	})
	l.ragged = r.Length%Segment != 0
	l.odd |= uint64(r.From) | uint64(r.To) | r.FromStride | r.ToStride | r.Length
	l.bytes, l.last = l.bytes+size, size
	if len(l.rows) >= launchRows {
		l.limit = min(l.limit, (l.bytes+Segment-1)/Segment*Segment)
	}
}

// end completes the table.
func (l *launch) end() {
	if l.ragged && l.rows[len(l.rows)-1].count > 1 {
		l.whole = false
	}
	if l.last > l.each*Segment {
		l.each = 0
	}
	if l.each == 0 {
		l.index()
	}
	l.rows = append(l.rows, row{start: uint32(l.bytes), length: math.MaxUint32, count: 1})
}

// index says of every segment in which row it begins.
func (l *launch) index() {
	for i := range l.rows {
		end := l.bytes
		if i+1 < len(l.rows) {
			end = uint64(l.rows[i+1].start)
		}
		for uint64(len(l.first))*Segment < end {
			l.first = append(l.first, uint32(i))
		}
	}
}

// again has the rows done once for each shift, instead of once.
func (l *launch) again(shifts []Shift) {
	l.period = l.bytes / Segment
	l.bytes *= uint64(len(shifts))
	l.shifts = append(l.shifts, shifts...)
	for _, s := range shifts {
		l.odd |= s.From | s.To
	}
}

// segments is how many there are.
func (l *launch) segments() int { return int((l.bytes + Segment - 1) / Segment) }

// width is what all that the launch reads and writes is a multiple of.
func (l *launch) width() int {
	for _, width := range []uint64{16, 8, 4} {
		if l.odd%width == 0 {
			return int(width)
		}
	}
	return 1
}

// cutter cuts moves into launches.
type cutter struct {
	list   []Move
	shifts []Shift // of the rounds that are not begun
	again  []Move  // what a round is, where there are several
	round  uint64  // bytes of one
	rest   []Move  // of the first of the list, in order; at most two
	limit  uint64  // bytes of a launch
}

func (m *Moves) cutter(limit uint64) cutter {
	if limit == 0 || limit > LaunchBytes {
		limit = LaunchBytes
	}
	if len(m.shifts) == 0 {
		return cutter{list: m.list, limit: limit}
	}
	return cutter{again: m.list, round: m.bytes / uint64(len(m.shifts)), shifts: m.shifts, limit: limit}
}

// fill makes the next launch, or returns false after the last.
func (c *cutter) fill(l *launch) bool {
	l.begin(c.limit)
	if c.rounds(l) {
		return true
	}
	for l.bytes < l.limit {
		room := l.limit - l.bytes
		if len(c.rest) == 0 && len(c.list) > 0 {
			if r := &c.list[0]; r.Length*r.Count <= room {
				c.list = c.list[1:]
				l.add(r)
				continue
			}
		}
		r, more := c.next()
		if !more {
			break
		}
		c.part(l, r, room)
	}
	if l.bytes == 0 {
		return false
	}
	l.end()
	return true
}

// rounds makes a launch of several rounds with one table, if each has whole segments
// and they are not too large.
func (c *cutter) rounds(l *launch) bool {
	if len(c.list)+len(c.rest) > 0 || len(c.shifts) < 2 || len(c.again) > launchRows || c.round%Segment != 0 || c.round == 0 {
		return false
	}
	fits := c.limit / c.round
	if fits < 2 {
		return false
	}
	for i := range c.again {
		l.add(&c.again[i])
	}
	l.end()
	n := min(len(c.shifts), int(fits), maxShifts)
	l.again(c.shifts[:n])
	c.shifts = c.shifts[n:]
	return true
}

// part adds as much of a run as there is room for, and puts the rest back.
func (c *cutter) part(l *launch, r Move, room uint64) {
	switch whole := room / r.Length; {
	case r.Count <= whole:
	case whole > 0:
		c.back(r.without(whole))
		r.Count = whole
	default:
		if r.Count > 1 {
			c.back(r.without(1))
		}
		c.back(r.skip(room))
		r = Move{From: r.From, To: r.To, Length: room, Count: 1}
	}
	l.add(&r)
}

func (c *cutter) next() (r Move, more bool) {
	if n := len(c.rest); n > 0 {
		r, c.rest = c.rest[n-1], c.rest[:n-1]
		return r, true
	}
	if len(c.list) == 0 && len(c.shifts) > 0 {
		c.list, c.shifts = shifted(c.again, c.shifts[0]), c.shifts[1:]
	}
	if len(c.list) == 0 {
		return Move{}, false
	}
	r, c.list = c.list[0], c.list[1:]
	return r, true
}

// shifted is a round of its own.
func shifted(moves []Move, by Shift) []Move {
	round := slices.Clone(moves)
	for i := range round {
		round[i].From += Pointer(by.From)
		round[i].To += Pointer(by.To)
	}
	return round
}

// back puts a run back, before what is left.
func (c *cutter) back(r Move) { c.rest = append(c.rest, r) }

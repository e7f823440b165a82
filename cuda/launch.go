package cuda

import "math"

// A launch is one run of a kernel: a bounded number of bytes, so that the fence that waits
// for memory to be quiet waits for one launch at most. What the kernel reads is a
// table of two parts:
//
//	rows    where its bytes come from and go to, in strided runs, and a sentinel
//	first   for every segment of 4 KiB the row in which it begins
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

	maxSegments = LaunchBytes / Segment
)

// row is what the kernels read, word for word: Row in kernels.cu.
type row struct {
	from, to             uint64
	fromStride, toStride uint64
	start, length, count uint32
	_                    uint32
}

const rowBytes = 48

type launch struct {
	rows  []row
	first []uint32
	bytes uint64
	limit uint64 // where it ends, unless the moves do before
	odd   uint64 // all addresses, strides and lengths, or-ed
	whole bool   // every segment lies in one piece
	// ragged: the last row's pieces do not end where segments do.
	ragged bool
}

// begin makes the launch empty; its slices keep their memory.
func (l *launch) begin() {
	*l = launch{rows: l.rows[:0], first: l.first[:0], limit: LaunchBytes, whole: true}
}

// add appends a run that does not go beyond the limit. The table of a long list is
// made while the device works, so this must take less time for a row than the device
// does for a block.
func (l *launch) add(r *Move) {
	if l.ragged || l.bytes%Segment != 0 {
		l.whole = false
	}
	index := len(l.rows)
	l.rows = append(l.rows, row{
		from: uint64(r.From), to: uint64(r.To), fromStride: r.FromStride, toStride: r.ToStride,
		start: uint32(l.bytes), length: uint32(r.Length), count: uint32(r.Count),
	})
	l.ragged = r.Length%Segment != 0
	l.odd |= uint64(r.From) | uint64(r.To) | r.FromStride | r.ToStride | r.Length
	l.bytes += r.Length * r.Count
	for uint64(len(l.first))*Segment < l.bytes {
		l.first = append(l.first, uint32(index))
	}
	if index+1 >= launchRows {
		l.limit = min(l.limit, (l.bytes+Segment-1)/Segment*Segment)
	}
}

// end appends the sentinel.
func (l *launch) end() {
	if l.ragged && l.rows[len(l.rows)-1].count > 1 {
		l.whole = false
	}
	l.rows = append(l.rows, row{start: uint32(l.bytes), length: math.MaxUint32, count: 1})
}

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
	list []Move
	rest []Move // of the first of the list, in order; at most two
}

// fill makes the next launch, or returns false after the last.
func (c *cutter) fill(l *launch) bool {
	l.begin()
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
	if len(c.list) == 0 {
		return Move{}, false
	}
	r, c.list = c.list[0], c.list[1:]
	return r, true
}

// back puts a run back, before what is left.
func (c *cutter) back(r Move) { c.rest = append(c.rest, r) }

package store

import (
	"slices"
	"sync"

	"meridian/move/checksum"
)

// writeSums is the sums of what a writer meant to write, segment by segment, so that the
// owner can compare what lies there. A segment that came in parts has none, and then
// the whole has none.
type writeSums struct {
	bytes uint64 // of the object

	mu   sync.Mutex // protects the rest
	sums []byte
	has  []bool // which of them are known
}

// spread is which segments bytes from an offset on touch, and which of those they fill.
func (w *writeSums) spread(offset, size uint64) (touched, filled [2]uint64) {
	const segment = checksum.Segment
	end := offset + size
	touched = [2]uint64{offset / segment, (end + segment - 1) / segment}
	filled = [2]uint64{(offset + segment - 1) / segment, end / segment}
	if end == w.bytes {
		filled[1] = touched[1] // the last one is shorter
	}
	return touched, filled
}

// note takes the sums of the segments that were filled by bytes from an offset on.
func (w *writeSums) note(offset, size uint64, sums []byte) {
	touched, filled := w.spread(offset, size)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has == nil {
		segments := (w.bytes + checksum.Segment - 1) / checksum.Segment
		w.sums, w.has = make([]byte, 8*segments), make([]bool, segments)
	}
	for i := touched[0]; i < touched[1]; i++ {
		w.has[i] = i >= filled[0] && i < filled[1]
	}
	copy(w.sums[8*min(filled[0], uint64(len(w.has))):], sums)
}

// take copies bytes of the object to dst, or sums them where they lie if dst is nil, and
// notes their sums.
func (w *writeSums) take(offset uint64, dst, data []byte) {
	_, filled := w.spread(offset, uint64(len(data)))
	from := min(filled[0]*checksum.Segment-offset, uint64(len(data)))
	to := min(max(filled[1]*checksum.Segment, offset+from)-offset, uint64(len(data)))
	var few [8 * 256]byte
	sums := few[:0]
	if dst == nil {
		sums = checksum.AppendSums(sums, data[from:to])
	} else {
		copy(dst, data[:from])
		sums = checksum.AppendCopy(sums, dst[from:], data[from:to])
		copy(dst[to:], data[to:])
	}
	w.note(offset, uint64(len(data)), sums)
}

// sum is that of the whole object, if all of it is known.
func (w *writeSums) sum() (sum uint64, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.has == nil || slices.Contains(w.has, false) {
		return 0, false
	}
	return checksum.OfSums(w.sums), true
}

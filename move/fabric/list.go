package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"meridian/move/mem"
)

// Part is some bytes of one region.
type Part struct {
	Region, Epoch uint64
	Spans         mem.Spans
}

// List says which bytes, in the order in which they are moved: the n-th byte of
// one side's list goes to the n-th byte of the other's, however differently the
// two are cut. One list may span regions and devices.
type List []Part

// Bytes is how many bytes the list covers.
func (l List) Bytes() (total uint64) {
	for i := range l {
		total += l[i].Spans.Bytes()
	}
	return total
}

// Pieces is how many contiguous pieces they are.
func (l List) Pieces() (total uint64) {
	for i := range l {
		total += l[i].Spans.Pieces()
	}
	return total
}

// Runs is how many runs the list has, those that parts share counted each time: they
// were written once, and are looked at as often.
func (l List) Runs() (total int) {
	for i := range l {
		total += len(l[i].Spans.Runs())
	}
	return total
}

// Touches reports whether the list names a region.
func (l List) Touches(region uint64) bool {
	return slices.ContainsFunc(l, func(p Part) bool { return p.Region == region })
}

// check refuses what no honest caller asks for: a list beyond the limits, or
// one whose length wraps around.
func (l List) check() error {
	if len(l) > MaxParts {
		return fmt.Errorf("%w: %d parts, at most %d", errList, len(l), MaxParts)
	}
	var bytes, pieces uint64
	for i := range l {
		spans := &l[i].Spans
		if runs := len(spans.Runs()); runs > MaxRuns {
			return fmt.Errorf("%w: %d runs in one part, at most %d", errList, runs, MaxRuns)
		}
		if pieces += min(spans.Pieces(), MaxPieces+1); pieces > MaxPieces {
			return fmt.Errorf("%w: more than %d pieces", errList, MaxPieces)
		}
		if bytes += spans.Bytes(); bytes < spans.Bytes() {
			return fmt.Errorf("%w: more than 2^64 bytes", errList)
		}
	}
	return nil
}

// checkOverlap reports whether the list, as a destination, names a byte twice.
func (l List) checkOverlap() error {
	switch len(l) {
	case 0:
		return nil // every message is a transfer of nothing
	case 1:
		return overlap(l[0].Region, &l[0].Spans)
	}
	regions := make(map[uint64]*mem.Spans, len(l))
	joined := make(map[uint64]bool) // regions whose spans are a copy that can grow
	for i := range l {
		id := l[i].Region
		whole := regions[id]
		if whole == nil {
			regions[id] = &l[i].Spans
			continue
		}
		if !joined[id] {
			joined[id] = true
			whole = &mem.Spans{}
			if err := addRuns(whole, regions[id]); err != nil {
				return err
			}
			regions[id] = whole
		}
		if err := addRuns(whole, &l[i].Spans); err != nil {
			return err
		}
	}
	var fine *mem.Spans // layers mostly have the same places
	for id, spans := range regions {
		if fine != nil && fine.Same(spans) {
			continue
		}
		if err := overlap(id, spans); err != nil {
			return err
		}
		fine = spans
	}
	return nil
}

// Share makes parts that name the same places in one region after the other, as the
// layers of a cache do, share their spans: what is found out about one of them is then
// known of all. Nothing may be added to them after it.
func (l List) Share() {
	for i := 1; i < len(l); i++ {
		if before := &l[i-1].Spans; l[i].Spans.Equal(before) {
			l[i].Spans = *before
		}
	}
}

func overlap(region uint64, spans *mem.Spans) error {
	if spans.Overlaps() {
		return fmt.Errorf("%w: in region %d", ErrOverlap, region)
	}
	return nil
}

func addRuns(dst, src *mem.Spans) error {
	for _, r := range src.Runs() {
		if err := dst.AddRun(r); err != nil {
			return err
		}
	}
	return nil
}

// Limits on a list, one's own or a peer's.
const (
	MaxParts  = 1 << 10
	MaxRuns   = 1 << 20
	MaxPieces = 1 << 22
	// maxRepeated is how many runs a list may name by saying that they are as before:
	// they cost their writer nothing, and are looked at each time.
	maxRepeated = 1 << 17
)

var errList = errors.New("fabric: bad list")

// Cut is what the next bytes of a list are; see Walk.
type Cut struct {
	Part           int
	Offset, Length uint64
}

// Walk hands out a list piece by piece.
type Walk struct {
	list   List
	part   int
	cursor mem.Cursor
	left   uint64
}

// Walk starts at the first byte.
func (l List) Walk() Walk {
	w := Walk{list: l, left: l.Bytes()}
	if len(l) > 0 {
		w.cursor = l[0].Spans.Cursor()
	}
	return w
}

// Left is how many bytes have not been handed out.
func (w *Walk) Left() uint64 { return w.left }

// Limit makes the walk end after at most bytes more.
func (w *Walk) Limit(bytes uint64) { w.left = min(w.left, bytes) }

// Next hands out the next contiguous piece, at most limit bytes of it; a length
// of zero means the end.
func (w *Walk) Next(limit uint64) Cut {
	if w.left == 0 || limit == 0 {
		return Cut{}
	}
	w.settle()
	offset, length := w.cursor.Next(min(limit, w.left))
	w.left -= length
	return Cut{Part: w.part, Offset: offset, Length: length}
}

// Run is what comes next, up to the end of a run, and of which part. It is not
// handed out: Skip does that. At the end it is empty. A walk that was limited may have
// less left than the run says.
func (w *Walk) Run() (part int, r mem.Run) {
	if w.left == 0 {
		return 0, mem.Run{}
	}
	w.settle()
	return w.part, w.cursor.Run()
}

// Whole is the runs of a part from here on, if none of the first one was handed out;
// they belong to the list, and may go on beyond the limit of the walk.
func (w *Walk) Whole() (part int, runs []mem.Run) {
	if w.left == 0 {
		return 0, nil
	}
	w.settle()
	return w.part, w.cursor.Whole()
}

// PassWhole moves past so many runs of Whole, of so many bytes in all.
func (w *Walk) PassWhole(runs int, bytes uint64) {
	w.cursor.PassWhole(runs, bytes)
	w.left -= bytes
}

// Pass moves past at most limit bytes in at most so many runs, and says how many bytes
// that were.
func (w *Walk) Pass(limit uint64, runs int) (bytes uint64) {
	limit = min(limit, w.left)
	for bytes < limit && runs > 0 {
		w.settle()
		step, passed := w.cursor.Pass(limit-bytes, runs)
		bytes += step
		w.left -= step
		runs -= passed
	}
	return bytes
}

// Rounds is how often the same places come from here on, in one part after the other to
// the end of the walk: 1 where they do not, and where some of a part was handed out.
func (w *Walk) Rounds() int {
	if w.left == 0 {
		return 1
	}
	w.settle()
	spans := &w.list[w.part].Spans
	rounds := len(w.list) - w.part
	if w.cursor.Left() != spans.Bytes() || spans.Bytes() > w.left/uint64(rounds) || spans.Bytes()*uint64(rounds) != w.left {
		return 1
	}
	for i := range w.list[w.part:] {
		if !spans.Same(&w.list[w.part+i].Spans) {
			return 1
		}
	}
	return rounds
}

// Part is the part that comes next.
func (w *Walk) Part() int {
	w.settle()
	return w.part
}

func (w *Walk) settle() {
	for w.cursor.Left() == 0 && w.part+1 < len(w.list) {
		w.part++
		w.cursor = w.list[w.part].Spans.Cursor()
	}
}

// Skip moves past bytes without handing them out.
func (w *Walk) Skip(bytes uint64) {
	for bytes > 0 && w.left > 0 {
		w.settle()
		step := min(bytes, w.left, w.cursor.Left())
		if step == w.cursor.Left() { // however many runs that are
			w.cursor = mem.Cursor{}
		} else {
			w.cursor.Skip(step)
		}
		w.left -= step
		bytes -= step
	}
}

// Slice appends to dst the list of the bytes [from, from+length) of l. Parts that lie in
// it as a whole share their spans with l.
func (l List) Slice(dst List, from, length uint64) (List, error) {
	w := l.Walk()
	w.Skip(from)
	own := false // the last part of dst is not shared
	for length > 0 {
		if w.left > 0 {
			w.settle()
			if whole := &l[w.part]; w.cursor.Left() == whole.Spans.Bytes() && w.cursor.Left() <= length {
				dst, own = append(dst, *whole), false
				length -= w.cursor.Left()
				w.Skip(w.cursor.Left())
				continue
			}
		}
		cut := w.Next(length)
		if cut.Length == 0 {
			return nil, fmt.Errorf("%w: it ends %d bytes early", errList, length)
		}
		source := &l[cut.Part]
		if n := len(dst); !own || dst[n-1].Region != source.Region || dst[n-1].Epoch != source.Epoch {
			dst, own = append(dst, Part{Region: source.Region, Epoch: source.Epoch}), true
			// As many runs as the share of the bytes suggests.
			share := float64(min(length, source.Spans.Bytes())) / float64(source.Spans.Bytes())
			dst[n].Spans.Grow(int(share*float64(len(source.Spans.Runs()))) + 1)
		}
		if err := dst[len(dst)-1].Spans.Add(cut.Offset, cut.Length); err != nil {
			return nil, err
		}
		length -= cut.Length
	}
	return dst, nil
}

// AppendTo appends l in wire form.
func (l List) AppendTo(b []byte) []byte { return l.append(b, 0) }

// AppendRepeating appends l in the wire form of peers that read repeated spans: where a
// part shares those of the part before, it says so instead.
func (l List) AppendRepeating(b []byte) []byte { return l.append(b, maxRepeated) }

// asBefore stands where a count of runs does: the part has the spans of the one before.
const asBefore = MaxRuns + 1

func (l List) append(b []byte, repeated int) []byte {
	b = binary.AppendUvarint(b, uint64(len(l)))
	for i := range l {
		b = binary.LittleEndian.AppendUint64(b, l[i].Region)
		b = binary.LittleEndian.AppendUint64(b, l[i].Epoch)
		if runs := len(l[i].Spans.Runs()); i > 0 && runs > 0 && runs <= repeated && l[i].Spans.Same(&l[i-1].Spans) {
			repeated -= runs
			b = binary.AppendUvarint(b, asBefore)
			continue
		}
		b = l[i].Spans.AppendTo(b)
	}
	return b
}

// ParseList reads what AppendTo wrote, from a stranger.
func ParseList(b []byte) (List, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > MaxParts {
		return nil, fmt.Errorf("%w: %d parts, at most %d", errList, count, MaxParts)
	}
	b = b[n:]
	l := make(List, 0, min(count, 16))
	repeated := 0 // runs that were not written out, and cost their writer nothing
	for i := range count {
		if len(b) < 16 {
			return nil, fmt.Errorf("%w: cut short", errList)
		}
		p := Part{Region: binary.LittleEndian.Uint64(b), Epoch: binary.LittleEndian.Uint64(b[8:])}
		b = b[16:]
		if runs, n := binary.Uvarint(b); runs == asBefore && n > 0 && i > 0 {
			p.Spans, b = l[i-1].Spans, b[n:]
			if repeated += len(p.Spans.Runs()); repeated > maxRepeated {
				return nil, fmt.Errorf("%w: more than %d repeated runs", errList, maxRepeated)
			}
			l = append(l, p)
			continue
		}
		var err error
		if p.Spans, b, err = mem.ParseSpans(b, MaxRuns); err != nil {
			return nil, err
		}
		l = append(l, p)
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes too many", errList, len(b))
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l, nil
}

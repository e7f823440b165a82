package agent

import (
	"cmp"
	"fmt"
	"slices"

	"meridian/fabric"
	"meridian/mem"
)

// opened is what a grant opens of one region.
type opened struct {
	region, epoch uint64
	// runs as they were granted: most requests name the same ones in the same
	// order.
	runs []mem.Run
	// places finds a run by the offset of its first byte.
	places []place
	// ranges are the same bytes, dense and in order.
	ranges []span
}

type place struct {
	offset uint64
	run    int
}

type span struct{ from, to uint64 }

// open prepares a list for being asked about. Its spans were checked against
// their regions, so nothing overflows here.
func open(l fabric.List) []opened {
	var all []opened
	for _, part := range l {
		o := openedOf(&all, part)
		for _, run := range part.Spans.Runs() {
			o.places = append(o.places, place{run.Offset, len(o.runs)})
			o.runs = append(o.runs, run)
			for i := range run.Count {
				at := run.Offset + i*run.Stride
				o.ranges = append(o.ranges, span{at, at + run.Length})
			}
		}
	}
	for i := range all {
		all[i].seal()
	}
	return all
}

func openedOf(all *[]opened, part fabric.Part) *opened {
	for i := range *all {
		if o := &(*all)[i]; o.region == part.Region && o.epoch == part.Epoch {
			return o
		}
	}
	*all = append(*all, opened{region: part.Region, epoch: part.Epoch})
	return &(*all)[len(*all)-1]
}

// seal sorts, and merges what touches.
func (o *opened) seal() {
	slices.SortFunc(o.places, func(x, y place) int { return cmp.Compare(x.offset, y.offset) })
	slices.SortFunc(o.ranges, func(x, y span) int { return cmp.Compare(x.from, y.from) })
	merged := o.ranges[:0]
	for _, r := range o.ranges {
		if n := len(merged); n > 0 && r.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, r.to)
			continue
		}
		merged = append(merged, r)
	}
	o.ranges = slices.Clip(merged)
}

// covers reports whether every byte of s is open.
func (o *opened) covers(s *mem.Spans) error {
	next := -1 // the granted run that is expected now
	for _, run := range s.Runs() {
		if next < 0 || next >= len(o.runs) || o.runs[next] != run {
			next = o.place(run.Offset)
		}
		if next >= 0 && o.runs[next] == run {
			next++
			continue
		}
		next = -1
		if err := o.coversRun(run); err != nil {
			return err
		}
	}
	return nil
}

// place finds the granted run that begins at offset, or -1.
func (o *opened) place(offset uint64) int {
	i, found := slices.BinarySearchFunc(o.places, offset, func(p place, at uint64) int { return cmp.Compare(p.offset, at) })
	if !found {
		return -1
	}
	return o.places[i].run
}

// coversRun looks at the bytes themselves. A peer's run may have any number of
// pieces, but the first that is not open ends the search, and those that are
// open lie apart: there are no more of them than bytes in the grant.
func (o *opened) coversRun(run mem.Run) error {
	if end, fits := run.End(); fits && o.holds(run.Offset, end) {
		return nil
	}
	for i := range run.Count {
		at := run.Offset + i*run.Stride
		if run.Stride <= run.Length && run.Count > 1 || !o.holds(at, at+run.Length) {
			return fmt.Errorf("%w: [%d,+%d) of region %d", fabric.ErrGrantSpans, at, run.Length, o.region)
		}
	}
	return nil
}

// holds reports whether one range holds [from, to).
func (o *opened) holds(from, to uint64) bool {
	i, found := slices.BinarySearchFunc(o.ranges, from, func(r span, at uint64) int { return cmp.Compare(r.from, at) })
	if !found {
		i--
	}
	return i >= 0 && to <= o.ranges[i].to
}

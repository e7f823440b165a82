package agent

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// grantedRuns is what a grant opens of one region.
type grantedRuns struct {
	region, epoch uint64
	// runs as they were granted: most requests name the same ones in the same
	// order, and nothing else is needed for them.
	runs []mem.Run
	// places finds a run by the offset of its first byte, ranges are the same
	// bytes, dense and in order. A run may have very many pieces, so neither is
	// made before a request needs it.
	places func() []place
	ranges func() []span
}

type place struct {
	offset uint64
	run    int
}

type span struct{ from, to uint64 }

// runsByRegion prepares a list for being asked about. Its spans were checked
// against their regions, so nothing overflows here.
func runsByRegion(l fabric.List) []grantedRuns {
	var all []grantedRuns
	for _, part := range l {
		g := runsOf(&all, part)
		g.runs = append(g.runs, part.Spans.Runs()...)
	}
	for i := range all {
		runs := all[i].runs
		all[i].places = sync.OnceValue(func() []place { return placesOf(runs) })
		all[i].ranges = sync.OnceValue(func() []span { return rangesOf(runs) })
	}
	return all
}

func runsOf(all *[]grantedRuns, part fabric.Part) *grantedRuns {
	for i := range *all {
		if g := &(*all)[i]; g.region == part.Region && g.epoch == part.Epoch {
			return g
		}
	}
	*all = append(*all, grantedRuns{region: part.Region, epoch: part.Epoch})
	return &(*all)[len(*all)-1]
}

func placesOf(runs []mem.Run) []place {
	places := make([]place, len(runs))
	for i, run := range runs {
		places[i] = place{run.Offset, i}
	}
	slices.SortFunc(places, func(x, y place) int { return cmp.Compare(x.offset, y.offset) })
	return places
}

// rangesOf sorts the pieces of runs, and merges those that touch.
func rangesOf(runs []mem.Run) []span {
	var pieces []span
	for _, run := range runs {
		for i := range run.Count {
			at := run.Offset + i*run.Stride
			pieces = append(pieces, span{at, at + run.Length})
		}
	}
	slices.SortFunc(pieces, func(x, y span) int { return cmp.Compare(x.from, y.from) })
	merged := pieces[:0]
	for _, r := range pieces {
		if n := len(merged); n > 0 && r.from <= merged[n-1].to {
			merged[n-1].to = max(merged[n-1].to, r.to)
			continue
		}
		merged = append(merged, r)
	}
	return slices.Clip(merged)
}

// covers reports whether every byte of s is open. A fabric cuts a request into
// parts, so the first run of one may begin anywhere; what follows is in order.
func (g *grantedRuns) covers(s *mem.Spans) error {
	next := 0 // the granted run that is expected now
	for i, run := range s.Runs() {
		if next < len(g.runs) && g.runs[next] == run {
			next++
			continue
		}
		at := g.find(run, next)
		if at < 0 && i == 0 {
			at = slices.IndexFunc(g.runs, func(granted mem.Run) bool { return within(granted, run) })
		}
		switch {
		case at >= 0 && g.runs[at] == run:
			next = at + 1
		case at >= 0:
			next = at
		default:
			if err := g.coversRun(run); err != nil {
				return err
			}
		}
	}
	return nil
}

// find returns a granted run that has all of run, or -1: the expected one, the
// one after it, or the last that does not begin after it.
func (g *grantedRuns) find(run mem.Run, expected int) int {
	for i := expected; i < min(expected+2, len(g.runs)); i++ {
		if within(g.runs[i], run) {
			return i
		}
	}
	places := g.places()
	i, found := slices.BinarySearchFunc(places, run.Offset, func(p place, at uint64) int { return cmp.Compare(p.offset, at) })
	if !found {
		i--
	}
	if i >= 0 && within(g.runs[places[i].run], run) {
		return places[i].run
	}
	return -1
}

// within reports whether each piece of run is in a piece of granted, by what the
// two say of themselves.
func within(granted, run mem.Run) bool {
	if run.Offset < granted.Offset || run.Length > granted.Length {
		return false
	}
	first, in := uint64(0), run.Offset-granted.Offset
	if granted.Count > 1 && granted.Stride > 0 {
		first, in = in/granted.Stride, in%granted.Stride
	}
	if first >= granted.Count || in > granted.Length-run.Length {
		return false
	}
	return run.Count <= 1 || run.Stride == granted.Stride && run.Count <= granted.Count-first
}

// coversRun looks at the bytes themselves. A peer's run may have any number of
// pieces, but the first that is not open ends the search, and those that are
// open lie apart: there are no more of them than bytes in the grant.
func (g *grantedRuns) coversRun(run mem.Run) error {
	if end, fits := run.End(); fits && g.holds(run.Offset, end) {
		return nil
	}
	for i := range run.Count {
		at := run.Offset + i*run.Stride
		if run.Stride <= run.Length && run.Count > 1 || !g.holds(at, at+run.Length) {
			return fmt.Errorf("%w: [%d,+%d) of region %d", fabric.ErrGrantSpans, at, run.Length, g.region)
		}
	}
	return nil
}

// holds reports whether one range holds [from, to).
func (g *grantedRuns) holds(from, to uint64) bool {
	ranges := g.ranges()
	i, found := slices.BinarySearchFunc(ranges, from, func(r span, at uint64) int { return cmp.Compare(r.from, at) })
	if !found {
		i--
	}
	return i >= 0 && to <= ranges[i].to
}

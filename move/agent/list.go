package agent

import (
	"cmp"
	"fmt"
	"slices"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// Descriptor names bytes by address, as engines do.
type Descriptor struct {
	Address, Length uint64
	Device          uint32
}

// List is descriptors whose regions were found: prepared once, used by index in
// any number of requests. For callers that know regions and strides it is made
// of spans, and has a part of those where another list has a descriptor.
type List struct {
	agent *Agent // whose list it is
	peer  *Peer  // whose memory it names; nil for the agent's own
	// regions are those that were known; pieces refer to them by place.
	regions []RegionInfo
	pieces  []piece     // of a list of descriptors
	spans   fabric.List // of a list of spans
	// kinds and fabrics are those of the regions that the list touches: any
	// kind, and the fabrics that reach all of them.
	kinds   []mem.Kind
	fabrics []string
}

type piece struct {
	offset, length uint64
	region         uint32
}

// Len is the number of descriptors, or of parts.
func (l *List) Len() int { return max(len(l.pieces), len(l.spans)) }

// Local prepares descriptors of this agent's memory.
func (a *Agent) Local(descriptors []Descriptor) (*List, error) {
	return newList(&List{agent: a, regions: a.Regions()}, descriptors)
}

// Remote prepares descriptors of a peer's memory, as far as its metadata tells.
func (p *Peer) Remote(descriptors []Descriptor) (*List, error) {
	return newList(&List{agent: p.agent, peer: p, regions: p.Regions()}, descriptors)
}

// LocalSpans is Local for callers that know regions and strides: blocks at equal
// distances stay one run from the plan to the wire. The list is the agent's.
func (a *Agent) LocalSpans(list fabric.List) (*List, error) {
	return newSpans(&List{agent: a, regions: a.Regions(), spans: list})
}

// RemoteSpans is Remote for such callers. The list is the agent's.
func (p *Peer) RemoteSpans(list fabric.List) (*List, error) {
	return newSpans(&List{agent: p.agent, peer: p, regions: p.Regions(), spans: list})
}

// newSpans finds the regions of l's spans, and checks that they hold them.
func newSpans(l *List) (*List, error) {
	touched := make([]bool, len(l.regions))
	for i := range l.spans {
		part := &l.spans[i]
		at := slices.IndexFunc(l.regions, func(r RegionInfo) bool { return r.ID == part.Region })
		if at < 0 {
			return nil, fmt.Errorf("%w: %d", fabric.ErrUnknownRegion, part.Region)
		}
		if have := l.regions[at].Epoch; have != part.Epoch {
			return nil, fmt.Errorf("%w: region %d is known at epoch %d, the list names %d", fabric.ErrStaleEpoch, part.Region, have, part.Epoch)
		}
		if err := part.Spans.Check(l.regions[at].Length); err != nil {
			return nil, fmt.Errorf("region %d: %w", part.Region, err)
		}
		touched[at] = true
	}
	l.summarize(touched)
	return l, nil
}

// newList places descriptors in the regions of l.
func newList(l *List, descriptors []Descriptor) (*List, error) {
	sorted := l.regions
	slices.SortFunc(sorted, func(x, y RegionInfo) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), cmp.Compare(x.Address, y.Address))
	})
	l.pieces = make([]piece, len(descriptors))
	touched := make([]bool, len(sorted))
	last := 0
	for i, d := range descriptors {
		if last >= len(sorted) || !sorted[last].covers(d.Device, d.Address, d.Length) {
			if last = find(sorted, d); last < 0 {
				return nil, fmt.Errorf("%w: descriptor %d, [%#x,+%d) on device %d, lies in no registered region",
					fabric.ErrUnknownRegion, i, d.Address, d.Length, d.Device)
			}
		}
		touched[last] = true
		l.pieces[i] = piece{offset: d.Address - sorted[last].Address, length: d.Length, region: uint32(last)}
	}
	l.summarize(touched)
	return l, nil
}

// summarize notes what the touched regions are made of and what reaches them all.
func (l *List) summarize(touched []bool) {
	first := true
	for i, r := range l.regions {
		if !touched[i] {
			continue
		}
		if !slices.Contains(l.kinds, r.Kind) {
			l.kinds = append(l.kinds, r.Kind)
		}
		if first {
			l.fabrics, first = slices.Clone(r.Fabrics), false
			continue
		}
		l.fabrics = slices.DeleteFunc(l.fabrics, func(name string) bool { return !slices.Contains(r.Fabrics, name) })
	}
}

// reachedBy reports whether a fabric reaches everything in the list.
func (l *List) reachedBy(name string) bool { return l.Len() == 0 || slices.Contains(l.fabrics, name) }

// find is a binary search for the region that holds d, or -1.
func find(sorted []RegionInfo, d Descriptor) int {
	i, _ := slices.BinarySearchFunc(sorted, d, func(r RegionInfo, d Descriptor) int {
		if r.Device < d.Device || r.Device == d.Device && r.Address <= d.Address {
			return -1
		}
		return 1
	})
	if i--; i >= 0 && sorted[i].covers(d.Device, d.Address, d.Length) {
		return i
	}
	return -1
}

// pick builds the fabric's list of the chosen descriptors or parts; nil chooses
// all.
func (l *List) pick(indices []int32) (out fabric.List, err error) {
	if indices == nil && l.spans != nil {
		return l.spans, nil
	}
	if indices == nil {
		for i := range l.pieces {
			if out, err = l.add(out, i, len(l.pieces)); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	for _, i := range indices {
		if i < 0 || int(i) >= l.Len() {
			return nil, fmt.Errorf("%w: index %d of a list of %d", mem.ErrBounds, i, l.Len())
		}
		if out, err = l.add(out, int(i), len(indices)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// add appends one descriptor or part to out, which will have so many in all.
func (l *List) add(out fabric.List, i, all int) (fabric.List, error) {
	if l.spans != nil {
		return append(out, l.spans[i]), nil
	}
	p := &l.pieces[i]
	r := &l.regions[p.region]
	if n := len(out); n == 0 || out[n-1].Region != r.ID {
		out = append(out, fabric.Part{Region: r.ID, Epoch: r.Epoch})
		if n == 0 {
			out[0].Spans.Grow(all) // most requests touch one region
		}
	}
	return out, out[len(out)-1].Spans.Add(p.offset, p.length)
}

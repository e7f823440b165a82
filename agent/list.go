package agent

import (
	"fmt"
	"slices"

	"meridian/fabric"
	"meridian/mem"
)

// Descriptor names bytes by address, as engines do.
type Descriptor struct {
	Address, Length uint64
	Device          uint32
}

// List is descriptors whose regions were found: prepared once, used by index in
// any number of requests.
type List struct {
	peer *Peer // nil for this agent's own memory
	// regions are those the list touches; pieces refer to them by place.
	regions []RegionInfo
	pieces  []piece
}

type piece struct {
	offset, length uint64
	region         uint32
}

// Len is the number of descriptors.
func (l *List) Len() int { return len(l.pieces) }

// Local prepares descriptors of this agent's memory.
func (a *Agent) Local(descriptors []Descriptor) (*List, error) {
	return newList(nil, a.Regions(), descriptors)
}

// Remote prepares descriptors of a peer's memory, as far as its metadata tells.
func (p *Peer) Remote(descriptors []Descriptor) (*List, error) {
	return newList(p, p.Regions(), descriptors)
}

func newList(p *Peer, known []RegionInfo, descriptors []Descriptor) (*List, error) {
	sorted := slices.Clone(known)
	slices.SortFunc(sorted, func(x, y RegionInfo) int {
		switch {
		case x.Device != y.Device:
			return int(int64(x.Device) - int64(y.Device))
		case x.Address < y.Address:
			return -1
		}
		return 1
	})
	l := &List{peer: p, regions: sorted, pieces: make([]piece, len(descriptors))}
	last := 0
	for i, d := range descriptors {
		if last >= len(sorted) || !sorted[last].covers(d.Device, d.Address, d.Length) {
			if last = find(sorted, d); last < 0 {
				return nil, fmt.Errorf("%w: descriptor %d, [%#x,+%d) on device %d, lies in no registered region",
					fabric.ErrUnknownRegion, i, d.Address, d.Length, d.Device)
			}
		}
		l.pieces[i] = piece{offset: d.Address - sorted[last].Address, length: d.Length, region: uint32(last)}
	}
	return l, nil
}

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

// pick builds the fabric's list of the chosen descriptors; nil chooses all.
func (l *List) pick(indices []int32) (fabric.List, error) {
	var out fabric.List
	left := len(indices)
	if indices == nil {
		left = len(l.pieces)
	}
	add := func(p piece) error {
		r := &l.regions[p.region]
		if n := len(out); n == 0 || out[n-1].Region != r.ID {
			out = append(out, fabric.Part{Region: r.ID, Epoch: r.Epoch})
			if n == 0 {
				out[0].Spans.Grow(left) // most requests touch one region
			}
		}
		return out[len(out)-1].Spans.Add(p.offset, p.length)
	}
	if indices == nil {
		for _, p := range l.pieces {
			if err := add(p); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	for _, i := range indices {
		if i < 0 || int(i) >= len(l.pieces) {
			return nil, fmt.Errorf("%w: index %d of a list of %d", mem.ErrBounds, i, len(l.pieces))
		}
		if err := add(l.pieces[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reachable names the fabrics that reach every region of the list.
func (l *List) reachable() map[string]bool {
	common := make(map[string]bool)
	for i, r := range l.usedRegions() {
		if i == 0 {
			for _, f := range r.Fabrics {
				common[f] = true
			}
			continue
		}
		for f := range common {
			if !slices.Contains(r.Fabrics, f) {
				delete(common, f)
			}
		}
	}
	return common
}

func (l *List) usedRegions() []RegionInfo {
	used := make([]bool, len(l.regions))
	for _, p := range l.pieces {
		used[p.region] = true
	}
	var out []RegionInfo
	for i, r := range l.regions {
		if used[i] {
			out = append(out, r)
		}
	}
	return out
}

// kinds names the kinds of memory the list touches.
func (l *List) kinds() []mem.Kind {
	var kinds []mem.Kind
	for _, r := range l.usedRegions() {
		if !slices.Contains(kinds, r.Kind) {
			kinds = append(kinds, r.Kind)
		}
	}
	return kinds
}

package reshard

import (
	"fmt"

	"github.com/zeebo/blake3"

	"meridian/kv"
)

// Shape is the part of a plan that two sides decide by themselves, before any
// request: which destination rank needs which layers and heads of which source
// ranks, and how far apart they lie in both memories. Prepare it once for two
// engines and plan every request with it; it does not change.
type Shape struct {
	src, dst   Side
	components []component
	memories   [][]memory // of the source, by stage and tensor rank
	// srcSpan and dstSpan is how many block numbers a block takes up: one, but
	// where blocks are longer than their stride.
	srcSpan, dstSpan int
	needs            []need
	digest           kv.Hash
}

// need is what the destination ranks of one cell, one for each context rank,
// take of one component from the source ranks of one stage that hold copies of
// the same heads.
type need struct {
	component int
	// src is the first owner; the owners are tensor ranks that follow one another.
	src, dst cell
	owners   int
	// turn is the number of destination cells before this one that take from the
	// same owners.
	turn   int
	layers interval // of the component
	tile   tile
}

// maxFlows bounds what a plan can come to, so that a stranger's declaration
// cannot cost more than memory for so many.
const maxFlows = 1 << 18

// The digest's first bytes say what was hashed and by which rules. A commit that
// changes a rule by which plans are made changes the revision. Revision 2 has block
// strides; where neither side has one, builds that know none agree on revision 1.
const (
	shapeDomain  = "meridian reshard shape 1\x00"
	placesDomain = "meridian reshard shape 2\x00"
	planDomain   = "meridian reshard plan 1\x00"
)

// Prepare makes the shape of all transfers from src to dst. It fails with
// kv.ErrShape if one of them cannot exist, and with an *Incompatible if they do
// not fit.
func Prepare(src, dst Side) (*Shape, error) {
	if err := src.Validate(); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	if err := dst.Validate(); err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	if err := compatible(src, dst); err != nil {
		return nil, err
	}
	s := &Shape{src: src.clone(), dst: dst.clone(), components: src.components(), digest: shapeDigest(src, dst)}
	if err := s.addNeeds(); err != nil {
		return nil, err
	}
	return s, nil
}

func shapeDigest(src, dst Side) kv.Hash {
	b := make([]byte, 0, len(shapeDomain)+src.encodedBytes()+dst.encodedBytes())
	if src.BlockStride != 0 || dst.BlockStride != 0 {
		b = src.appendPlacesTo(src.appendTo(append(b, placesDomain...)))
		return blake3.Sum256(dst.appendPlacesTo(dst.appendTo(b)))
	}
	return blake3.Sum256(dst.appendTo(src.appendTo(append(b, shapeDomain...))))
}

// Groups is how many block tables a request has on each side.
func (s *Shape) Groups() int { return s.components[len(s.components)-1].group + 1 }

func (s *Shape) addNeeds() error {
	src, err := memories(s.src, s.components)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	dst, err := memories(s.dst, s.components)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	s.memories, s.srcSpan, s.dstSpan = src, spanOf(s.src, src), spanOf(s.dst, dst)
	contexts := s.src.Parallelism.CP * s.dst.Parallelism.CP
	for i, c := range s.components {
		pairing := pairing{
			component: i, geometry: c, src: src, dst: dst, owners: ownersOf(s.src.Parallelism, c.heads), turns: make(map[ownersKey]int),
		}
		for stage := range s.dst.Parallelism.Stages {
			for tensor := range s.dst.Parallelism.TP {
				s.needs = pairing.appendNeeds(s.needs, cell{stage, tensor})
			}
			if len(s.needs)*contexts > maxFlows {
				return fmt.Errorf("%w: %d×%d ranks make more than %d pairs", kv.ErrShape, s.src.Parallelism.Ranks(), s.dst.Parallelism.Ranks(), maxFlows)
			}
		}
	}
	return nil
}

// memories returns what every cell of a side keeps, by stage and tensor rank.
func memories(s Side, components []component) ([][]memory, error) {
	all := make([][]memory, len(s.Parallelism.Stages))
	for stage := range all {
		all[stage] = make([]memory, s.Parallelism.TP)
		for tensor := range all[stage] {
			m, err := s.memory(components, cell{stage, tensor})
			if err != nil {
				return nil, err
			}
			all[stage][tensor] = m
		}
	}
	return all, nil
}

// spanOf is how many block numbers the longest block of a side takes up.
func spanOf(s Side, cells [][]memory) int {
	if s.BlockStride == 0 {
		return 1
	}
	return int((longestBlock(cells) + s.BlockStride - 1) / s.BlockStride)
}

func longestBlock(cells [][]memory) (longest int64) {
	for _, stage := range cells {
		for _, m := range stage {
			longest = max(longest, m.blockBytes)
		}
	}
	return longest
}

// ownersOf returns for each head which tensor ranks hold it.
func ownersOf(p kv.Parallelism, heads int) []interval {
	owners := make([]interval, heads)
	for tensor := range p.TP {
		for h, end := p.Heads(tensor, heads); h < end; h++ {
			if owners[h].len() == 0 {
				owners[h].first = tensor
			}
			owners[h].end = tensor + 1
		}
	}
	return owners
}

// turnKey is one set of owners: those of a head in a stage.
type ownersKey struct{ stage, head int }

// pairing finds the needs of one component.
type pairing struct {
	component int
	geometry  component
	src, dst  [][]memory
	owners    []interval
	turns     map[ownersKey]int
}

func (p *pairing) appendNeeds(needs []need, dst cell) []need {
	to := p.dst[dst.stage][dst.tensor].grids[p.component]
	for stage := range p.src {
		// All tensor ranks of a stage hold the same layers.
		layers := p.src[stage][0].grids[p.component].layers.intersect(to.layers)
		if layers.len() == 0 {
			continue
		}
		for first := to.heads.first; first < to.heads.end; {
			owners := p.owners[first]
			from := p.src[stage][owners.first].grids[p.component]
			heads := from.heads.intersect(to.heads)
			heads.first = first
			key := ownersKey{stage, first}
			needs = append(needs, need{
				component: p.component, src: cell{stage, owners.first}, dst: dst, owners: owners.len(), turn: p.turns[key], layers: layers,
				tile: newTile(p.geometry, from, to, layers, heads),
			})
			p.turns[key]++
			first = heads.end
		}
	}
	return needs
}

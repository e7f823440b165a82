package reshard

import (
	"encoding/binary"
	"fmt"
	"slices"

	"meridian/kv"
)

// Side is one engine as the planner sees it: what it caches and how that lies
// in the memory of its ranks.
//
// A rank's memory holds one dense grid for every component of every group of
// layers, in the order of kv.Geometry.Groups, a group's indexer after its cache.
// Each grid has the rank's layers and heads in order, and Blocks blocks.
type Side struct {
	Geometry    kv.Geometry
	Parallelism kv.Parallelism
	Layout      kv.Layout
	// Packing says what must stay whole. It holds for the cache; an indexer's
	// keys and scales are packed by whole blocks in any case.
	Packing kv.Packing
	// BlockTokens is the number of tokens in a block.
	BlockTokens int
	// Blocks is the number of blocks in each rank's memory.
	Blocks int
	// InterleaveTokens is how many tokens in a row a context rank takes before
	// the next one's turn; 0 means one block.
	InterleaveTokens int
}

// Limits on what a stranger may declare. They bound what planning costs.
const (
	maxBlockTokens = 1 << 20
	maxBlocks      = 1 << 32
	maxRanks       = 1 << 10
	maxGroups      = 1 << 6
)

// Validate says what is impossible about s.
func (s Side) Validate() error {
	if err := s.Geometry.Validate(); err != nil {
		return err
	}
	if err := s.Parallelism.Validate(len(s.Geometry.Layers)); err != nil {
		return err
	}
	switch {
	case s.Parallelism.Ranks() > maxRanks:
		return fmt.Errorf("%w: %d ranks, at most %d are planned for", kv.ErrShape, s.Parallelism.Ranks(), maxRanks)
	case len(s.Geometry.Groups()) > maxGroups:
		return fmt.Errorf("%w: %d groups of equal layers, at most %d are planned for", kv.ErrShape, len(s.Geometry.Groups()), maxGroups)
	case !s.Layout.Valid():
		return fmt.Errorf("%w: no layout given", kv.ErrShape)
	case s.BlockTokens < 1 || s.BlockTokens > maxBlockTokens:
		return fmt.Errorf("%w: %d tokens in a block, must be 1…%d", kv.ErrShape, s.BlockTokens, maxBlockTokens)
	case s.Blocks < 1 || s.Blocks > maxBlocks:
		return fmt.Errorf("%w: %d blocks, must be 1…%d", kv.ErrShape, s.Blocks, maxBlocks)
	case s.InterleaveTokens < 0 || s.InterleaveTokens > maxBlockTokens:
		return fmt.Errorf("%w: context ranks take turns of %d tokens, must be 0…%d", kv.ErrShape, s.InterleaveTokens, maxBlockTokens)
	}
	if err := s.Packing.Validate(s.Layout); err != nil {
		return err
	}
	if what := s.indivisible(); what != "" && s.Parallelism.CP > 1 && s.turnTokens()%s.BlockTokens != 0 {
		return fmt.Errorf("%w: %s allows no cut within a block, but context ranks take turns of %d tokens in blocks of %d",
			kv.ErrShape, what, s.turnTokens(), s.BlockTokens)
	}
	return nil
}

// indivisible names what forbids a cut within a block, if anything does.
func (s Side) indivisible() string {
	switch {
	case !s.Packing.Plain():
		return "packing " + s.Packing.String()
	case slices.ContainsFunc(s.Geometry.Layers, func(l kv.Layer) bool { return l.IndexBytes > 0 }):
		return "the indexer's packing"
	}
	return ""
}

// turnTokens is how many tokens in a row one context rank takes.
func (s Side) turnTokens() int {
	if s.InterleaveTokens == 0 {
		return s.BlockTokens
	}
	return s.InterleaveTokens
}

// RankBytes returns the size of every rank's KV memory. A stranger's side may
// have a thousand ranks and thousands of layers: its layers are gone through once.
func (s Side) RankBytes() ([]int64, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	cells, err := memories(s, s.components())
	if err != nil {
		return nil, err
	}
	sizes := make([]int64, s.Parallelism.Ranks())
	for rank := range sizes {
		at := s.Parallelism.Rank(rank)
		sizes[rank] = cells[at.PP][at.TP].bytes
	}
	return sizes, nil
}

// MemoryBytes returns the size of a rank's KV memory.
func (s Side) MemoryBytes(rank int) (int64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	if rank < 0 || rank >= s.Parallelism.Ranks() {
		return 0, fmt.Errorf("%w: rank %d of %d", kv.ErrShape, rank, s.Parallelism.Ranks())
	}
	r := s.Parallelism.Rank(rank)
	m, err := s.memory(s.components(), cell{stage: r.PP, tensor: r.TP})
	return m.bytes, err
}

func (s Side) clone() Side {
	s.Geometry.Layers = slices.Clone(s.Geometry.Layers)
	s.Parallelism.Stages = slices.Clone(s.Parallelism.Stages)
	return s
}

// equal reports whether two sides say the same; what is short is compared first.
func (s *Side) equal(other Side) bool {
	p, q := &s.Parallelism, &other.Parallelism
	return s.BlockTokens == other.BlockTokens && s.Blocks == other.Blocks && s.InterleaveTokens == other.InterleaveTokens &&
		s.Layout == other.Layout && s.Packing == other.Packing && s.Geometry.DType == other.Geometry.DType &&
		p.TP == q.TP && p.CP == q.CP && p.DP == q.DP && slices.Equal(p.Stages, q.Stages) && slices.Equal(s.Geometry.Layers, other.Geometry.Layers)
}

// appendTo appends everything that s says, in a form that no other Side has.
func (s Side) appendTo(b []byte) []byte {
	b = appendInts(b, int(s.Geometry.DType), len(s.Geometry.Layers))
	for _, l := range s.Geometry.Layers {
		b = appendInts(b, int(l.Attention), l.KVHeads, l.HeadDim, l.WindowTokens, l.IndexBytes)
	}
	b = appendInts(b, s.Parallelism.TP, s.Parallelism.CP, s.Parallelism.DP, len(s.Parallelism.Stages))
	b = appendInts(b, s.Parallelism.Stages...)
	b = append(b, s.Layout.Axes()...)
	b = appendInts(b, int(s.Packing.Unit), len(s.Packing.Name))
	b = append(b, s.Packing.Name...)
	return appendInts(b, s.BlockTokens, s.Blocks, s.InterleaveTokens)
}

// encodedBytes is about how much appendTo appends.
func (s Side) encodedBytes() int {
	return 5*8*len(s.Geometry.Layers) + 8*len(s.Parallelism.Stages) + len(s.Packing.Name) + 256
}

func appendInts(b []byte, values ...int) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

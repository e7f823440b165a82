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
//
// Where BlockStride is given, a rank's memory is one arena instead, and a block's
// number is a place in it: block b begins at byte b·BlockStride, and each
// component lies dense at its offset from there. Blocks may be longer than the
// stride; then not every number is a block's, and no two of a request overlap.
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
	// BlockStride is how many bytes it is from one block's number to the next; 0:
	// there are dense grids.
	BlockStride int64
	// Offsets is where each component begins in a block, in the order of the grids;
	// with BlockStride alone.
	Offsets []int64
}

// Limits on what a stranger may declare. They bound what planning costs.
const (
	maxBlockTokens = 1 << 20
	maxBlocks      = 1 << 32
	maxRanks       = 1 << 10
	maxGroups      = 1 << 6
	maxStride      = 1 << 40
	maxOffset      = 1 << 48
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
	if err := s.validateStride(); err != nil {
		return err
	}
	if what := s.indivisible(); what != "" && s.Parallelism.CP > 1 && s.turnTokens()%s.BlockTokens != 0 {
		return fmt.Errorf("%w: %s allows no cut within a block, but context ranks take turns of %d tokens in blocks of %d",
			kv.ErrShape, what, s.turnTokens(), s.BlockTokens)
	}
	return nil
}

// validateStride says what is impossible about blocks that lie at places of one
// arena. Whether they overlap themselves is seen when their components are laid
// out.
func (s Side) validateStride() error {
	if s.BlockStride == 0 && len(s.Offsets) == 0 {
		return nil
	}
	if s.BlockStride < 1 || s.BlockStride > maxStride {
		return fmt.Errorf("%w: %d bytes from block to block with %d offsets, must be 1…%d, or 0 without offsets", kv.ErrShape, s.BlockStride, len(s.Offsets), int64(maxStride))
	}
	if s.Layout.Axes()[0] != byte(kv.BlockAxis) {
		return fmt.Errorf("%w: layout %v with a block stride: blocks must be the outermost axis", kv.ErrShape, s.Layout)
	}
	if want := len(s.components()); len(s.Offsets) != want {
		return fmt.Errorf("%w: %d offsets within a block of %d components", kv.ErrShape, len(s.Offsets), want)
	}
	for i, at := range s.Offsets {
		if at < 0 || at > maxOffset {
			return fmt.Errorf("%w: component %d at byte %d of a block, must be 0…%d", kv.ErrShape, i, at, int64(maxOffset))
		}
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

// BlockBytes returns how long a block of a rank is, of the rank whose blocks are
// longest.
func (s Side) BlockBytes() (int64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	cells, err := memories(s, s.components())
	return longestBlock(cells), err
}

func (s Side) clone() Side {
	s.Geometry.Layers = slices.Clone(s.Geometry.Layers)
	s.Parallelism.Stages = slices.Clone(s.Parallelism.Stages)
	s.Offsets = slices.Clone(s.Offsets)
	return s
}

// equal reports whether two sides say the same; what is short is compared first.
func (s *Side) equal(other Side) bool {
	p, q := &s.Parallelism, &other.Parallelism
	return s.BlockTokens == other.BlockTokens && s.Blocks == other.Blocks && s.InterleaveTokens == other.InterleaveTokens &&
		s.Layout == other.Layout && s.Packing == other.Packing && s.Geometry.DType == other.Geometry.DType &&
		s.BlockStride == other.BlockStride && slices.Equal(s.Offsets, other.Offsets) &&
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

// appendPlacesTo appends what revision 2 of the digest adds to appendTo.
func (s Side) appendPlacesTo(b []byte) []byte {
	b = appendInts(b, int(s.BlockStride), len(s.Offsets))
	for _, at := range s.Offsets {
		b = appendInts(b, int(at))
	}
	return b
}

// encodedBytes is about how much appendTo appends.
func (s Side) encodedBytes() int {
	return 5*8*len(s.Geometry.Layers) + 8*len(s.Parallelism.Stages) + 8*len(s.Offsets) + len(s.Packing.Name) + 256
}

func appendInts(b []byte, values ...int) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

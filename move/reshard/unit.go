package reshard

import (
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"meridian/kv"
)

// PlaceBytes is how far apart the places are that the block numbers of an object
// cache name.
const PlaceBytes = 4096

// Unit is what an object cache keeps as one object: so many tokens of one
// sequence, all layers and all heads of them. Every engine that publishes a model's cache, under
// whatever split, block size and layout, has the same unit.
//
//	│ component 0: layer, head, token, K V │ component 1 … │
//	0                                      Offsets[1]      Bytes
type Unit struct {
	// Tokens in it.
	Tokens int
	// Bytes of its object.
	Bytes int64

	side Side
}

// unitLayout is the order within a unit. Most engines have it within a block,
// and every packing allows it.
var unitLayout = func() kv.Layout {
	l, err := kv.ParseLayout("BLHNC")
	if err != nil {
		panic(err) // the name is known
	}
	return l
}()

// unitAlignment is where a component may begin in a unit.
const unitAlignment = 64

// UnitOf is the unit of an engine's cache. It has so many tokens as asked for,
// but where nothing may be cut within a block it is one block of the engine. Layers
// with a sliding window are refused: engines give up what the window has left
// behind, so that a unit of theirs is whole only at the end of its sequence.
func UnitOf(publisher Side, tokens int) (Unit, error) {
	if err := publisher.Validate(); err != nil {
		return Unit{}, err
	}
	if i := slices.IndexFunc(publisher.Geometry.Layers, func(l kv.Layer) bool { return l.WindowTokens > 0 }); i >= 0 {
		return Unit{}, fmt.Errorf("%w: layer %d has a sliding window of %d tokens; caches of such models are not kept", kv.ErrShape, i, publisher.Geometry.Layers[i].WindowTokens)
	}
	if publisher.indivisible() != "" {
		tokens = publisher.BlockTokens
	}
	u := Unit{Tokens: tokens, side: Side{
		Geometry: publisher.Geometry, Parallelism: kv.Split(len(publisher.Geometry.Layers), 1, 1), Layout: unitLayout,
		Packing: publisher.Packing, BlockTokens: tokens, Blocks: 1,
	}.clone()}
	if err := u.side.Validate(); err != nil {
		return Unit{}, err
	}
	dense, err := u.side.memory(u.side.components(), cell{})
	if err != nil {
		return Unit{}, err
	}
	for _, g := range dense.grids {
		u.Bytes = (u.Bytes + unitAlignment - 1) / unitAlignment * unitAlignment
		u.side.Offsets = append(u.side.Offsets, u.Bytes)
		if u.Bytes += g.bytes; u.Bytes > maxOffset {
			return Unit{}, fmt.Errorf("%w: %d tokens take more than %d bytes", kv.ErrShape, tokens, int64(maxOffset))
		}
	}
	u.side.BlockStride = PlaceBytes
	return u, compatible(publisher, u.side)
}

// Digest is of all that decides what a unit's bytes mean: the geometry, the
// packing, the tokens in it and the offsets of its components.
func (u Unit) Digest() kv.Hash {
	return blake3.Sum256(u.side.appendPlacesTo(u.side.appendTo([]byte(unitDomain))))
}

const unitDomain = "meridian reshard unit 1\x00"

// Side is an object cache as the planner sees it, with units at places of so
// much memory: a unit's block number is its first byte ÷ PlaceBytes.
func (u Unit) Side(memoryBytes int64) (Side, error) {
	s := u.side.clone()
	s.Blocks = int(memoryBytes / PlaceBytes)
	_, err := s.RankBytes()
	return s, err
}

package reshard

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"meridian/kv"
)

// component is one kind of array that a group of layers keeps: K and V, an MLA
// latent, or an indexer's keys.
type component struct {
	group   int
	layer   kv.Layer
	indices []int // the group's layers within the model
	parts   int
	heads   int
	// elements of one vector, each of elementBytes bytes
	elements     int
	elementBytes int64
	// unit is what must stay whole.
	unit kv.PackedUnit
}

func (s Side) components() []component {
	var all []component
	for i, g := range s.Geometry.Groups() {
		all = append(all, component{
			group: i, layer: g.Layer, indices: g.Indices, parts: g.Factor(), heads: g.KVHeads,
			elements: g.HeadDim, elementBytes: int64(s.Geometry.DType.Bytes()), unit: s.Packing.Unit,
		})
		if g.IndexBytes > 0 {
			all = append(all, component{
				group: i, layer: g.Layer, indices: g.Indices, parts: 1, heads: 1,
				elements: g.IndexBytes, elementBytes: 1, unit: kv.WholeBlock,
			})
		}
	}
	return all
}

// interval is the half-open range [first, end).
type interval struct{ first, end int }

func (i interval) len() int { return max(0, i.end-i.first) }

func (i interval) intersect(other interval) interval {
	both := interval{max(i.first, other.first), min(i.end, other.end)}
	if both.end <= both.first {
		return interval{}
	}
	return both
}

// within returns which of the component's layers are among layers [first, end)
// of the model.
func (c component) within(model interval) interval {
	first, _ := slices.BinarySearch(c.indices, model.first)
	end, _ := slices.BinarySearch(c.indices, model.end)
	return interval{first, end}
}

// cell is the part of a rank that decides what it holds of every token.
type cell struct{ stage, tensor int }

// grid is one component in a rank's memory.
type grid struct {
	base    int64
	strides kv.Strides // in bytes
	layers  interval   // of the component
	heads   interval
	// elements and parts of a token, or of a block that must stay whole.
	elements, parts int64
	bytes           int64
}

func headsOf(s Side, tensor, heads int) interval {
	first, end := s.Parallelism.Heads(tensor, heads)
	return interval{first, end}
}

// memory is what a rank keeps; its grids are numbered as the components are.
type memory struct {
	grids []grid
	bytes int64
	// blockBytes is how long a block is, with what lies between its components.
	blockBytes int64
}

func (s Side) memory(components []component, at cell) (memory, error) {
	if s.BlockStride > 0 {
		return s.arena(components, at)
	}
	m := memory{grids: make([]grid, len(components))}
	for i, c := range components {
		g, err := s.grid(c, at)
		if err != nil {
			return memory{}, err
		}
		g.base = m.bytes
		if g.bytes > math.MaxInt64-m.bytes {
			return memory{}, fmt.Errorf("%w: %d blocks of %d tokens take more than 2^63 bytes a rank", kv.ErrShape, s.Blocks, s.BlockTokens)
		}
		m.grids[i] = g
		m.bytes += g.bytes
	}
	m.blockBytes = m.bytes / int64(s.Blocks)
	return m, nil
}

// arena places components within the blocks of a rank whose blocks lie at places
// of one arena.
func (s Side) arena(components []component, at cell) (memory, error) {
	if int64(s.Blocks) > math.MaxInt64/s.BlockStride {
		return memory{}, fmt.Errorf("%w: %d blocks %d bytes apart take more than 2^63 bytes a rank", kv.ErrShape, s.Blocks, s.BlockStride)
	}
	m := memory{grids: make([]grid, len(components)), bytes: int64(s.Blocks) * s.BlockStride}
	one := s
	one.Blocks = 1
	var byOffset []int
	for i, c := range components {
		g, err := one.grid(c, at)
		if err != nil {
			return memory{}, err
		}
		if g.bytes == 0 {
			continue // the stage has no layer of it
		}
		if g.bytes > m.bytes || s.Offsets[i] > m.bytes-g.bytes {
			return memory{}, fmt.Errorf("%w: component %d has %d bytes of a block at %d, a rank's memory has %d", kv.ErrShape, i, g.bytes, s.Offsets[i], m.bytes)
		}
		g.base, g.strides.Block = s.Offsets[i], s.BlockStride
		m.grids[i] = g
		m.blockBytes = max(m.blockBytes, g.base+g.bytes)
		byOffset = append(byOffset, i)
	}
	slices.SortFunc(byOffset, func(a, b int) int { return cmp.Compare(s.Offsets[a], s.Offsets[b]) })
	for k := 1; k < len(byOffset); k++ {
		if before, i := byOffset[k-1], byOffset[k]; s.Offsets[before]+m.grids[before].bytes > s.Offsets[i] {
			return memory{}, fmt.Errorf("%w: components %d and %d of a block overlap: %d bytes at %d, the other at %d",
				kv.ErrShape, before, i, m.grids[before].bytes, s.Offsets[before], s.Offsets[i])
		}
	}
	return m, nil
}

// grid places a component in a rank's memory. Where a block must stay whole, it
// counts as one token that is as large as the block.
func (s Side) grid(c component, at cell) (grid, error) {
	first, end := s.Parallelism.Layers(at.stage)
	g := grid{layers: c.within(interval{first, end})}
	if g.layers.len() == 0 {
		return grid{}, nil
	}
	g.heads = headsOf(s, at.tensor, c.heads)
	extents := kv.Extents{
		Layers: g.layers.len(), Blocks: s.Blocks, Parts: c.parts, Heads: g.heads.len(), Tokens: s.BlockTokens, Elements: c.elements,
	}
	layout := s.Layout
	if c.unit != kv.Element {
		extents.Elements *= extents.Parts * extents.Tokens
		extents.Parts, extents.Tokens = 1, 1
		layout = layout.Innermost(kv.ElementAxis)
	}
	if c.unit == kv.WholeBlock {
		extents.Elements *= extents.Heads
		extents.Heads = 1
	}
	strides, err := layout.Strides(extents)
	if err != nil {
		return grid{}, err
	}
	if strides.Total > math.MaxInt64/c.elementBytes {
		return grid{}, fmt.Errorf("%w: %d blocks of %d tokens take more than 2^63 bytes a rank", kv.ErrShape, s.Blocks, s.BlockTokens)
	}
	for _, stride := range []*int64{&strides.Layer, &strides.Block, &strides.Part, &strides.Head, &strides.Token, &strides.Element} {
		*stride *= c.elementBytes
	}
	g.elements, g.parts = int64(extents.Elements), int64(extents.Parts)
	g.strides, g.bytes = strides, strides.Total*c.elementBytes
	return g, nil
}

package handoff

import (
	"slices"

	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

// How a party goes over the wire. Layers that are alike follow one another as a
// count, members are named once, and block numbers are distances: most of them
// are one.

func (p *Party) each(c fields.Codec) {
	c.Text(maxName, &p.Engine.ID)
	eachOfSide(c, &p.Engine.Side)
	eachRank(c, &p.Engine.Ranks)
	eachOfHolding(c, &p.Holding)
}

func eachOfSide(c fields.Codec, s *reshard.Side) {
	fields.Enum(c, &s.Geometry.DType)
	eachLayer(c, &s.Geometry.Layers)
	p := &s.Parallelism
	c.Int(&p.TP, &p.CP, &p.DP)
	c.Ints(maxLayers, &p.Stages)
	layout, packing := s.Layout.Axes(), s.Packing.String()
	c.Text(16, &layout)
	c.Text(maxName, &packing)
	if c.Reads() {
		var unknownLayout, unknownPacking error
		s.Layout, unknownLayout = kv.ParseLayout(layout)
		s.Packing, unknownPacking = kv.ParsePacking(packing)
		c.Demand(unknownLayout == nil && unknownPacking == nil)
	}
	c.Int(&s.BlockTokens, &s.Blocks, &s.InterleaveTokens)
	if c.Form() >= placesForm {
		fields.UpTo(c, 1<<48, &s.BlockStride)
		fields.List(c, maxComponents, &s.Offsets, func(at *int64) { fields.UpTo(c, 1<<48, at) })
	}
}

// alike is layers in a row that are.
type alike struct {
	count int
	layer kv.Layer
}

func eachLayer(c fields.Codec, layers *[]kv.Layer) {
	var runs []alike
	if !c.Reads() {
		for i, l := range *layers {
			if i == 0 || l != (*layers)[i-1] {
				runs = append(runs, alike{layer: l})
			}
			runs[len(runs)-1].count++
		}
	}
	fields.List(c, maxLayers, &runs, func(a *alike) {
		fields.UpTo(c, maxLayers, &a.count)
		fields.Enum(c, &a.layer.Attention)
		c.Int(&a.layer.KVHeads, &a.layer.HeadDim, &a.layer.WindowTokens, &a.layer.IndexBytes)
		if c.Reads() {
			c.Demand(a.count > 0 && len(*layers)+a.count <= maxLayers)
			*layers = append(*layers, slices.Repeat([]kv.Layer{a.layer}, min(a.count, maxLayers-len(*layers)))...)
		}
	})
}

// eachRank has the members that ranks belong to first, and numbers them.
func eachRank(c fields.Codec, ranks *[]Rank) {
	var members []kv.Member
	number := make(map[kv.Member]int)
	if !c.Reads() {
		for i := range *ranks {
			if m := (*ranks)[i].Agent; number[m] == 0 {
				members = append(members, m)
				number[m] = len(members)
			}
		}
	}
	fields.List(c, maxRanks, &members, func(m *kv.Member) { eachMember(c, m) })
	fields.List(c, maxRanks, ranks, func(r *Rank) {
		at := uint64(number[r.Agent] - 1)
		if c.Uint(&at); c.Reads() {
			if c.Demand(at < uint64(len(members))); at < uint64(len(members)) {
				r.Agent = members[at]
			}
		}
		fields.List(c, maxExtents, (*[]Extent)(&r.Memory), func(x *Extent) { c.Uint(&x.Region, &x.Epoch, &x.Offset, &x.Length) })
	})
}

func eachOfHolding(c fields.Codec, h *reshard.Holding) {
	c.Int(&h.DP)
	left := maxBlocks
	fields.List(c, maxTables, &h.Tables, func(table *[]uint32) {
		last := int64(0)
		fields.List(c, left, table, func(block *uint32) {
			distance := zigzag(int64(*block) - last)
			c.Uint(&distance)
			last += unzigzag(distance)
			c.Demand(last >= 0 && last < 1<<32)
			if c.Reads() {
				*block = uint32(last)
			}
		})
		left -= len(*table)
	})
}

// zigzag makes small numbers of distances in both directions.
func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

package handoff

import (
	"meridian/kv"
	"meridian/reshard"
)

// How a party goes over the wire. Layers that are alike follow one another as a
// count, members are named once, and block numbers are distances: most of them
// are one.

func (p *Party) append(w *writer) {
	w.text(p.Engine.ID)
	appendSide(w, &p.Engine.Side)
	appendRanks(w, p.Engine.Ranks)
	appendHolding(w, &p.Holding)
}

func (p *Party) parse(r *reader) {
	p.Engine.ID = r.text(maxName)
	parseSide(r, &p.Engine.Side)
	p.Engine.Ranks = parseRanks(r)
	parseHolding(r, &p.Holding)
}

func appendSide(w *writer, s *reshard.Side) {
	w.u8(uint8(s.Geometry.DType))
	var runs int
	for i, l := range s.Geometry.Layers {
		if i == 0 || l != s.Geometry.Layers[i-1] {
			runs++
		}
	}
	w.count(runs)
	for first := 0; first < len(s.Geometry.Layers); {
		l, end := s.Geometry.Layers[first], first+1
		for end < len(s.Geometry.Layers) && s.Geometry.Layers[end] == l {
			end++
		}
		w.count(end - first)
		w.u8(uint8(l.Attention))
		for _, v := range []int{l.KVHeads, l.HeadDim, l.WindowTokens, l.IndexBytes} {
			w.uint(uint64(v))
		}
		first = end
	}
	p := s.Parallelism
	for _, v := range []int{p.TP, p.CP, p.DP} {
		w.uint(uint64(v))
	}
	w.ints(p.Stages)
	w.text(s.Layout.Axes())
	w.text(s.Packing.String())
	for _, v := range []int{s.BlockTokens, s.Blocks, s.InterleaveTokens} {
		w.uint(uint64(v))
	}
}

func parseSide(r *reader, s *reshard.Side) {
	s.Geometry.DType = kv.DType(r.u8())
	for range r.count(maxLayers) {
		n := int(r.uintTo(maxLayers))
		l := kv.Layer{Attention: kv.Attention(r.u8()), KVHeads: r.int(), HeadDim: r.int(), WindowTokens: r.int(), IndexBytes: r.int()}
		if n == 0 || len(s.Geometry.Layers)+n > maxLayers || r.bad {
			r.fail()
			return
		}
		for range n {
			s.Geometry.Layers = append(s.Geometry.Layers, l)
		}
	}
	s.Parallelism = kv.Parallelism{TP: r.int(), CP: r.int(), DP: r.int(), Stages: r.ints(maxLayers)}
	layout, err := kv.ParseLayout(r.text(16))
	if err != nil {
		r.fail()
	}
	packing, err := kv.ParsePacking(r.text(maxName))
	if err != nil {
		r.fail()
	}
	s.Layout, s.Packing = layout, packing
	s.BlockTokens, s.Blocks, s.InterleaveTokens = r.int(), r.int(), r.int()
}

func appendRanks(w *writer, ranks []Rank) {
	var members []Member
	number := make(map[Member]int)
	for i := range ranks {
		if _, known := number[ranks[i].Agent]; !known {
			number[ranks[i].Agent] = len(members)
			members = append(members, ranks[i].Agent)
		}
	}
	w.count(len(members))
	for _, m := range members {
		m.append(w)
	}
	w.count(len(ranks))
	for i := range ranks {
		w.count(number[ranks[i].Agent])
		w.count(len(ranks[i].Memory))
		for _, x := range ranks[i].Memory {
			for _, v := range []uint64{x.Region, x.Epoch, x.Offset, x.Length} {
				w.uint(v)
			}
		}
	}
}

func parseRanks(r *reader) []Rank {
	members := make([]Member, r.count(maxRanks))
	for i := range members {
		members[i].parse(r)
	}
	var ranks []Rank
	for range r.count(maxRanks) {
		at := r.uint()
		if at >= uint64(len(members)) {
			r.fail()
			return nil
		}
		rank := Rank{Agent: members[at]}
		for range r.count(maxExtents) {
			rank.Memory = append(rank.Memory, Extent{Region: r.uint(), Epoch: r.uint(), Offset: r.uint(), Length: r.uint()})
		}
		ranks = append(ranks, rank)
	}
	return ranks
}

func appendHolding(w *writer, h *reshard.Holding) {
	w.uint(uint64(h.DP))
	w.count(len(h.Tables))
	for _, table := range h.Tables {
		w.count(len(table))
		last := uint32(0)
		for _, block := range table {
			w.uint(zigzag(int64(block) - int64(last)))
			last = block
		}
	}
}

func parseHolding(r *reader, h *reshard.Holding) {
	h.DP = r.int()
	left := maxBlocks
	for range r.count(maxTables) {
		n := r.count(left)
		left -= n
		table := make([]uint32, n)
		last := int64(0)
		for i := range table {
			last += unzigzag(r.uint())
			if last < 0 || last >= 1<<32 {
				r.fail()
				return
			}
			table[i] = uint32(last)
		}
		h.Tables = append(h.Tables, table)
	}
}

// zigzag makes small numbers of distances in both directions.
func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

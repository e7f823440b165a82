package handoff

import (
	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

// How a party goes over the wire. Layers that are alike follow one another as a
// count, members are named once, and block numbers are distances: most of them
// are one.

func (p *Party) append(w *fields.Writer) {
	w.Text(p.Engine.ID)
	appendSide(w, &p.Engine.Side)
	appendRanks(w, p.Engine.Ranks)
	appendHolding(w, &p.Holding)
}

func (p *Party) parse(r *fields.Reader) {
	p.Engine.ID = r.Text(maxName)
	parseSide(r, &p.Engine.Side)
	p.Engine.Ranks = parseRanks(r)
	parseHolding(r, &p.Holding)
}

func appendSide(w *fields.Writer, s *reshard.Side) {
	w.U8(uint8(s.Geometry.DType))
	var runs int
	for i, l := range s.Geometry.Layers {
		if i == 0 || l != s.Geometry.Layers[i-1] {
			runs++
		}
	}
	w.Count(runs)
	for first := 0; first < len(s.Geometry.Layers); {
		l, end := s.Geometry.Layers[first], first+1
		for end < len(s.Geometry.Layers) && s.Geometry.Layers[end] == l {
			end++
		}
		w.Count(end - first)
		w.U8(uint8(l.Attention))
		for _, v := range []int{l.KVHeads, l.HeadDim, l.WindowTokens, l.IndexBytes} {
			w.Uint(uint64(v))
		}
		first = end
	}
	p := s.Parallelism
	for _, v := range []int{p.TP, p.CP, p.DP} {
		w.Uint(uint64(v))
	}
	w.Ints(p.Stages)
	w.Text(s.Layout.Axes())
	w.Text(s.Packing.String())
	for _, v := range []int{s.BlockTokens, s.Blocks, s.InterleaveTokens} {
		w.Uint(uint64(v))
	}
	if w.Form >= placesForm {
		w.Uint(uint64(s.BlockStride))
		w.Count(len(s.Offsets))
		for _, at := range s.Offsets {
			w.Uint(uint64(at))
		}
	}
}

func parseSide(r *fields.Reader, s *reshard.Side) {
	s.Geometry.DType = kv.DType(r.U8())
	for range r.Count(maxLayers) {
		n := int(r.UintTo(maxLayers))
		l := kv.Layer{Attention: kv.Attention(r.U8()), KVHeads: r.Int(), HeadDim: r.Int(), WindowTokens: r.Int(), IndexBytes: r.Int()}
		if n == 0 || len(s.Geometry.Layers)+n > maxLayers || r.Failed() {
			r.Fail()
			return
		}
		for range n {
			s.Geometry.Layers = append(s.Geometry.Layers, l)
		}
	}
	s.Parallelism = kv.Parallelism{TP: r.Int(), CP: r.Int(), DP: r.Int(), Stages: r.Ints(maxLayers)}
	layout, err := kv.ParseLayout(r.Text(16))
	if err != nil {
		r.Fail()
	}
	packing, err := kv.ParsePacking(r.Text(maxName))
	if err != nil {
		r.Fail()
	}
	s.Layout, s.Packing = layout, packing
	s.BlockTokens, s.Blocks, s.InterleaveTokens = r.Int(), r.Int(), r.Int()
	if r.Form >= placesForm {
		s.BlockStride = int64(r.Int())
		for range r.Count(maxComponents) {
			s.Offsets = append(s.Offsets, int64(r.Int()))
		}
	}
}

func appendRanks(w *fields.Writer, ranks []Rank) {
	var members []kv.Member
	number := make(map[kv.Member]int)
	for i := range ranks {
		if _, known := number[ranks[i].Agent]; !known {
			number[ranks[i].Agent] = len(members)
			members = append(members, ranks[i].Agent)
		}
	}
	w.Count(len(members))
	for _, m := range members {
		appendMember(w, m)
	}
	w.Count(len(ranks))
	for i := range ranks {
		w.Count(number[ranks[i].Agent])
		w.Count(len(ranks[i].Memory))
		for _, x := range ranks[i].Memory {
			for _, v := range []uint64{x.Region, x.Epoch, x.Offset, x.Length} {
				w.Uint(v)
			}
		}
	}
}

func parseRanks(r *fields.Reader) []Rank {
	members := make([]kv.Member, r.Count(maxRanks))
	for i := range members {
		members[i] = parseMember(r)
	}
	var ranks []Rank
	for range r.Count(maxRanks) {
		at := r.Uint()
		if at >= uint64(len(members)) {
			r.Fail()
			return nil
		}
		rank := Rank{Agent: members[at]}
		for range r.Count(maxExtents) {
			rank.Memory = append(rank.Memory, Extent{Region: r.Uint(), Epoch: r.Uint(), Offset: r.Uint(), Length: r.Uint()})
		}
		ranks = append(ranks, rank)
	}
	return ranks
}

func appendHolding(w *fields.Writer, h *reshard.Holding) {
	w.Uint(uint64(h.DP))
	w.Count(len(h.Tables))
	for _, table := range h.Tables {
		w.Count(len(table))
		last := uint32(0)
		for _, block := range table {
			w.Uint(zigzag(int64(block) - int64(last)))
			last = block
		}
	}
}

func parseHolding(r *fields.Reader, h *reshard.Holding) {
	h.DP = r.Int()
	left := maxBlocks
	for range r.Count(maxTables) {
		n := r.Count(left)
		left -= n
		table := make([]uint32, n)
		last := int64(0)
		for i := range table {
			last += unzigzag(r.Uint())
			if last < 0 || last >= 1<<32 {
				r.Fail()
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

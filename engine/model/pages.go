package model

import "meridian/engine/model/kernel"

// pages is the cache of one text in one KV head of one layer: blocks of a rank's
// memory, in the order of the block table.
type pages struct {
	rank        *rank
	base        int64 // of the head's K, at block 0 and its first token
	blocks      []uint32
	blockTokens int
	headDim     int
}

const (
	keyPart   = 0
	valuePart = 1
)

// vectors returns K or V of positions from from on, and of how many: up to the
// end of the block, or to position end. They are in place where a vector lies in whole
// lanes; else they are gathered into room, padded.
func (p *pages) vectors(part, from, end int, room *kernel.Rows) (kernel.Rows, int) {
	slot := from % p.blockTokens
	count := min(p.blockTokens-slot, end-from)
	s := &p.rank.strides
	at := p.base + int64(p.blocks[from/p.blockTokens])*s.Block + int64(slot)*s.Token + int64(part)*s.Part
	if s.Element == 1 && p.headDim%kernel.Lanes == 0 {
		return kernel.Rows{Data: p.rank.memory[at:], Stride: int(s.Token)}, count
	}
	count = min(count, gatheredAtOnce)
	grow(room, gatheredAtOnce, p.headDim)
	for i := range count {
		row := room.Row(i, p.headDim)
		for e := range row {
			row[e] = p.rank.memory[at+int64(i)*s.Token+int64(e)*s.Element]
		}
	}
	return *room, count
}

// remember finishes the queries and keys of a span, and writes keys and values
// to the ranks that own their heads.
func (r *Runner) remember(_, unit int) {
	c, l, s := &r.model.config, &r.model.layers[r.layer], &r.spans[unit]
	for i := range s.tokens {
		position := s.position + i
		k, v := r.k.Row(s.row+i, c.KVHeads*c.HeadDim), r.v.Row(s.row+i, c.KVHeads*c.HeadDim)
		r.turnHeads(r.q.Row(s.row+i, c.Heads*c.HeadDim), l.queryNorm, position)
		r.turnHeads(k, l.keyNorm, position)
		block, slot := int64(s.Blocks[position/r.cut.BlockTokens]), int64(position%r.cut.BlockTokens)
		for n := range r.stage.ranks {
			owner := &r.stage.ranks[n]
			for head := range owner.heads {
				to := owner.head(r.layer-r.stage.first, head) + block*owner.strides.Block + slot*owner.strides.Token
				from := (owner.firstHead + head) * c.HeadDim
				owner.put(to, k[from:from+c.HeadDim])
				owner.put(to+owner.strides.Part, v[from:from+c.HeadDim])
			}
		}
	}
}

// head returns where a head's K of block 0 and its first token lies.
func (k *rank) head(layer, head int) int64 {
	return int64(layer)*k.strides.Layer + int64(head)*k.strides.Head
}

func (k *rank) put(to int64, vector []float32) {
	if k.strides.Element == 1 {
		copy(k.memory[to:], vector)
		return
	}
	for _, v := range vector {
		k.memory[to] = v
		to += k.strides.Element
	}
}

// turnHeads norms every head, where the model does so, and turns it.
func (r *Runner) turnHeads(heads, weight []float32, position int) {
	d := r.model.config.HeadDim
	for ; len(heads) > 0; heads = heads[d:] {
		if weight != nil {
			norm(heads[:d], heads[:d], weight, r.model.config.NormEpsilon)
		}
		r.turns.turn(heads[:d], position)
	}
}

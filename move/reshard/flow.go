package reshard

import (
	"iter"

	"meridian/kv"
)

// Run is Count copies of Length bytes each: from Src in the source rank's memory
// to Dst in the destination rank's, then SrcStride and DstStride bytes further.
// A run of one copy has no strides.
type Run struct {
	Src, Dst             int64
	Length, Count        int64
	SrcStride, DstStride int64
}

// Flow is everything that goes from one source rank to one destination rank.
type Flow struct {
	Src, Dst int // rank numbers, as kv.Parallelism.Index counts

	shape   *Shape
	request *Request
	parts   []part
	layers  interval // of the model
}

// part is one need of a flow with the tokens it is for.
type part struct {
	need  *need
	pair  *contextPair
	place int   // of the pair among those of the component
	base  int64 // of the component in the source's memory
}

// Layers returns the part of f that belongs to layers [first, end) of the model,
// so that layers can move as they are computed.
func (f Flow) Layers(first, end int) Flow {
	f.layers = f.layers.intersect(interval{first, end})
	return f
}

// Tokens returns the part of f that belongs to a range of the context's tokens, so
// that chunks can move as they are computed. Blocks of the source are not cut: one
// belongs to the range that its last token lies in, or to the one that has the last
// token that moves. So parts for ranges that follow one another are the whole, and
// nothing in them is of a token after their range.
func (f Flow) Tokens(tokens kv.TokenRange) (Flow, error) {
	all := f.request.Tokens
	block := f.shape.src.BlockTokens
	cut := func(token int) int {
		if token < all.End {
			token -= token % block
		}
		return min(max(token, all.Start), all.End)
	}
	some := *f.request
	if some.Tokens = (kv.TokenRange{Start: cut(tokens.Start), End: cut(tokens.End)}); some.Tokens == all {
		return f, nil
	}
	pairs := make(map[int][]contextPair)
	parts := make([]part, len(f.parts))
	for i, p := range f.parts {
		c := p.need.component
		if pairs[c] == nil {
			left := maxPieces
			var err error
			if pairs[c], err = f.shape.cut(f.shape.components[c], some, &left); err != nil {
				return Flow{}, err
			}
		}
		p.pair = &pairs[c][p.place]
		parts[i] = p
	}
	f.parts = parts
	return f, nil
}

// clip returns which of the need's layers belong to the flow.
func (f Flow) clip(n *need) interval {
	return n.layers.intersect(f.shape.components[n.component].within(f.layers))
}

// Bytes is how much moves.
func (f Flow) Bytes() int64 {
	var total int64
	for _, p := range f.parts {
		total += p.need.tile.bytesEachToken * p.pair.tokens * int64(f.clip(p.need).len())
	}
	return total
}

// Runs yields what to copy, in an order that both sides share. No byte of the
// destination is in two runs of a plan, so they may be done in any order.
func (f Flow) Runs() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		f.eachNest(func(n *nest, src, dst int64) bool { return n.each(0, src, dst, yield) })
	}
}

// CountRuns is how many runs there are, and of how many pieces.
func (f Flow) CountRuns() (runs, pieces int64) {
	f.eachNest(func(n *nest, _, _ int64) bool {
		r := n.runs()
		runs += r
		if n.depth > 0 {
			r *= n.loops[n.depth-1].count
		}
		pieces += r
		return true
	})
	return runs, pieces
}

// eachNest visits every tile times every block run.
func (f Flow) eachNest(visit func(n *nest, src, dst int64) bool) {
	for _, p := range f.parts {
		layers, t := f.clip(p.need), &p.need.tile
		if layers.len() == 0 {
			continue
		}
		skipped := int64(layers.first - p.need.layers.first)
		src, dst := p.base+t.src+skipped*t.layer.src, t.dst+skipped*t.layer.dst
		for i := range p.pair.pieces {
			if !t.eachNest(int64(layers.len()), &p.pair.pieces[i], src, dst, visit) {
				return
			}
		}
	}
}

// eachNest visits the block runs of one pattern.
func (t *tile) eachNest(layers int64, p *pieces, src, dst int64, visit func(n *nest, src, dst int64) bool) bool {
	src += int64(p.srcToken) * t.token.src
	dst += int64(p.dstToken) * t.token.dst
	var n nest
	var folded blockRun
	for at := 0; at < len(p.blocks); {
		s := p.run(at)
		if s.count != folded.count || s.srcStep != folded.srcStep || s.dstStep != folded.dstStep {
			n, folded = fold(t.elementBytes, t.loops(layers, p.tokens, s)), s
		}
		if !visit(&n, src+int64(s.first.src)*t.block.src, dst+int64(s.first.dst)*t.block.dst) {
			return false
		}
		at += int(s.count)
	}
	return true
}

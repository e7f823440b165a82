package model

import (
	"math"

	"meridian/engine/model/kernel"
)

// worker is what one goroutine needs for attention.
type worker struct {
	queries, scores, mixed kernel.Rows
	sums                   []float32
	gathered               kernel.Rows
}

// queriesAtOnce is how many queries share a walk over the keys.
const queriesAtOnce = 32

// gatheredAtOnce bounds what is gathered before it is used.
const gatheredAtOnce = 64

// attend computes what the queries of one span find in one KV head.
func (r *Runner) attend(goroutine, unit int) {
	c := &r.model.config
	s, head := &r.spans[unit/c.KVHeads], unit%c.KVHeads
	perRank := c.KVHeads / len(r.stage.ranks)
	p := pages{
		rank: &r.stage.ranks[head/perRank], blocks: s.Blocks, blockTokens: r.cut.BlockTokens, headDim: c.HeadDim,
	}
	p.base = p.rank.head(r.layer-r.stage.first, head%perRank)
	group := c.Heads / c.KVHeads
	atOnce := max(1, queriesAtOnce/group)
	for first := 0; first < s.tokens; first += atOnce {
		row, column := s.row+first, head*group*c.HeadDim
		t := tile{
			worker: &r.workers[goroutine], pages: p,
			in:    kernel.Rows{Data: r.q.From(row).Data[column:], Stride: r.q.Stride},
			out:   kernel.Rows{Data: r.a.From(row).Data[column:], Stride: r.a.Stride},
			group: group, tokens: min(atOnce, s.tokens-first), start: s.position + first,
		}
		t.compute()
	}
}

// tile is consecutive tokens of one text, with the query heads that share a KV
// head: query i is of token i/group.
type tile struct {
	*worker
	pages
	in, out kernel.Rows // of the first query head; the others follow side by side
	group   int
	tokens  int
	start   int // the first token's position
}

func (t *tile) compute() {
	d, width := t.headDim, kernel.Padded(t.headDim)
	count, positions := t.tokens*t.group, t.start+t.tokens
	grow(&t.queries, count, d)
	grow(&t.mixed, count, d)
	grow(&t.scores, count, positions)
	scale := float32(1 / math.Sqrt(float64(d)))
	for i := range count {
		query := t.queries.Row(i, d)
		for e, v := range t.in.Row(i/t.group, t.group*d)[i%t.group*d:][:d] {
			query[e] = v * scale
		}
		clear(t.mixed.Row(i, width))
	}
	for from := 0; from < positions; {
		keys, n := t.vectors(keyPart, from, positions, &t.gathered)
		kernel.Dots(t.columns(from), keys, n, t.queries, count, width)
		from += n
	}
	t.weigh(count)
	for from := 0; from < positions; {
		values, n := t.vectors(valuePart, from, positions, &t.gathered)
		kernel.Mix(t.mixed, t.columns(from), count, values, n, width)
		from += n
	}
	for i := range count {
		weight := 1 / t.sums[i]
		out := t.out.Row(i/t.group, t.group*d)[i%t.group*d:][:d]
		for e, v := range t.mixed.Row(i, d) {
			out[e] = v * weight
		}
	}
}

// weigh makes weights of scores. A token sees itself and what came before.
func (t *tile) weigh(count int) {
	t.sums = t.sums[:0]
	for i := range count {
		seen := t.start + i/t.group + 1
		row := t.scores.Row(i, t.scores.Stride)
		lanes := kernel.Padded(seen)
		for p := seen; p < lanes; p++ {
			row[p] = minusInfinity
		}
		t.sums = append(t.sums, kernel.Softmax(row[:lanes]))
		clear(row[lanes:])
	}
}

// columns returns the scores from a position on.
func (t *tile) columns(from int) kernel.Rows {
	return kernel.Rows{Data: t.scores.Data[from:], Stride: t.scores.Stride}
}

var minusInfinity = float32(math.Inf(-1))

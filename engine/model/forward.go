package model

import (
	"math"

	"meridian/engine/model/kernel"
)

// buffers is what a step works in. They grow to the largest step and are kept.
// A row is a token of the step; what pads rows is zero and stays zero.
type buffers struct {
	rows  int
	spans []span

	x, h, y    kernel.Rows // the residual stream, normed, and what is added to it
	q, k, v, a kernel.Rows
	gate, up   kernel.Rows
	logits     kernel.Rows
	workers    []worker

	// What units of work are about, while they are done.
	layer      int
	stage      *stage
	norm       []float32
	projection projection
}

// span is the rows of one slice, and the position of the first.
type span struct {
	*Slice
	row, tokens, position int
}

func (r *Runner) forward(batch []Slice) {
	r.prepare(batch)
	for s := range r.stages {
		r.stage = &r.stages[s]
		for i := r.stage.first; i < r.stage.end; i++ {
			r.layer = i
			r.attention(&r.model.layers[i])
			r.feedForward(&r.model.layers[i])
		}
	}
	r.finish()
	clear(r.spans) // the slices are the caller's again
}

// prepare lists the tokens and makes room for them.
func (r *Runner) prepare(batch []Slice) {
	r.rows, r.spans = 0, r.spans[:0]
	end := 0
	for i := range batch {
		s := &batch[i]
		r.spans = append(r.spans, span{s, r.rows, len(s.Tokens), s.Start})
		r.rows += len(s.Tokens)
		end = max(end, s.Start+len(s.Tokens))
	}
	r.turns.upTo(end)
	c := &r.model.config
	for _, rows := range [...]*kernel.Rows{&r.x, &r.h, &r.y} {
		grow(rows, r.rows, c.Hidden)
	}
	grow(&r.q, r.rows, c.Heads*c.HeadDim)
	grow(&r.a, r.rows, c.Heads*c.HeadDim)
	grow(&r.k, r.rows, c.KVHeads*c.HeadDim)
	grow(&r.v, r.rows, c.KVHeads*c.HeadDim)
	grow(&r.gate, r.rows, c.Intermediate)
	grow(&r.up, r.rows, c.Intermediate)
	grow(&r.logits, len(batch), c.Vocab)
	for len(r.workers) < r.threads() {
		r.workers = append(r.workers, worker{})
	}
	for _, s := range r.spans {
		for i, token := range s.Tokens {
			copy(r.x.Row(s.row+i, c.Hidden), r.model.embed.Row(int(token), c.Hidden))
		}
	}
}

// grow makes room for n rows, and somewhat more, as contexts grow step by step.
// Old contents may be lost.
func grow(rows *kernel.Rows, n, width int) {
	rows.Stride = kernel.Padded(width)
	if need, have := n*rows.Stride, len(rows.Data); have < need {
		rows.Data = make([]float32, max(need, have+have/2))
	}
}

func (r *Runner) attention(l *layer) {
	c := &r.model.config
	r.normalise(l.inputNorm)
	r.project(r.q, l.query, r.h, c.HeadDim*c.Heads/c.KVHeads)
	r.project(r.k, l.key, r.h, c.HeadDim)
	r.project(r.v, l.value, r.h, c.HeadDim)
	r.spread(len(r.spans), (*Runner).remember)
	if r.LayerDone != nil {
		r.LayerDone(r.layer + 1)
	}
	if r.layer == c.Layers-1 {
		r.narrow()
	}
	r.spread(len(r.spans)*c.KVHeads, (*Runner).attend)
	r.project(r.y, l.output, r.a, 1)
	r.eachRow((*Runner).add)
}

func (r *Runner) feedForward(l *layer) {
	r.normalise(l.outputNorm)
	r.project(r.gate, l.gate, r.h, 1)
	r.project(r.up, l.up, r.h, 1)
	r.eachRow((*Runner).activate)
	r.project(r.y, l.down, r.gate, 1)
	r.eachRow((*Runner).add)
}

// narrow drops the rows whose logits are not wanted, once the last layer's KV is
// written: the rest of that layer is for logits alone.
func (r *Runner) narrow() {
	kept := r.spans[:0]
	for _, s := range r.spans {
		if s.Logits == nil {
			continue
		}
		last := s.tokens - 1
		copy(r.x.Row(len(kept), r.x.Stride), r.x.Row(s.row+last, r.x.Stride))
		copy(r.q.Row(len(kept), r.q.Stride), r.q.Row(s.row+last, r.q.Stride))
		kept = append(kept, span{s.Slice, len(kept), 1, s.position + last})
	}
	clear(r.spans[len(kept):])
	r.spans, r.rows = kept, len(kept)
}

// finish computes the logits that are wanted.
func (r *Runner) finish() {
	if r.rows == 0 {
		return
	}
	r.normalise(r.model.norm)
	r.project(r.logits, r.model.head, r.h, 1)
	for _, s := range r.spans {
		copy(s.Logits, r.logits.Row(s.row, r.model.config.Vocab))
	}
}

// rowsPerUnit is how many rows a goroutine takes at a time for what is done row
// by row.
const rowsPerUnit = 16

func (r *Runner) eachRow(do func(r *Runner, worker, unit int)) {
	r.spread((r.rows+rowsPerUnit-1)/rowsPerUnit, do)
}

// rowsOf returns which rows a unit of eachRow is.
func (r *Runner) rowsOf(unit int) (first, end int) {
	return unit * rowsPerUnit, min((unit+1)*rowsPerUnit, r.rows)
}

func (r *Runner) normalise(weight []float32) {
	r.norm = weight
	r.eachRow((*Runner).normaliseRows)
}

func (r *Runner) normaliseRows(_, unit int) {
	c := &r.model.config
	for i, end := r.rowsOf(unit); i < end; i++ {
		norm(r.h.Row(i, c.Hidden), r.x.Row(i, c.Hidden), r.norm, c.NormEpsilon)
	}
}

// norm is the root mean square norm.
func norm(out, in, weight []float32, epsilon float32) {
	mean := kernel.Square(in)/float32(len(in)) + epsilon
	kernel.Scale(out, in, weight, 1/float32(math.Sqrt(float64(mean))))
}

func (r *Runner) add(_, unit int) {
	for i, end := r.rowsOf(unit); i < end; i++ {
		kernel.Add(r.x.Row(i, r.x.Stride), r.y.Row(i, r.y.Stride))
	}
}

func (r *Runner) activate(_, unit int) {
	for i, end := r.rowsOf(unit); i < end; i++ {
		kernel.Gate(r.gate.Row(i, r.gate.Stride), r.up.Row(i, r.up.Stride))
	}
}

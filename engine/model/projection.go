package model

import "meridian/engine/model/kernel"

// projection is out = w·in for every row of a step.
type projection struct {
	out, in kernel.Rows
	w       matrix
	// unit is how many outputs stay together: those of a KV head, or one.
	unit int
	// parts is into how many parts a rank's share is cut for goroutines.
	parts int
}

// project has each rank compute its outputs, and puts them side by side.
func (r *Runner) project(out kernel.Rows, w matrix, in kernel.Rows, unit int) {
	ranks := len(r.stage.ranks)
	r.projection = projection{out, in, w, unit, (r.threads() + ranks - 1) / ranks}
	r.spread(ranks*r.projection.parts, (*Runner).projectPart)
}

func (r *Runner) projectPart(_, part int) {
	p := &r.projection
	first, end := share(p.w.rows/p.unit, len(r.stage.ranks), part/p.parts)
	first, end = first*p.unit, end*p.unit
	from, to := share(end-first, p.parts, part%p.parts)
	if from, to = first+from, first+to; from < to {
		out := kernel.Rows{Data: p.out.Data[from:], Stride: p.out.Stride}
		kernel.Dots(out, p.w.From(from), to-from, p.in, r.rows, p.w.Stride)
	}
}

// share cuts n things into parts and returns which of them are part i.
func share(n, parts, i int) (first, end int) { return i * n / parts, (i + 1) * n / parts }

package transceiver

import (
	"slices"
	"sync"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// planner makes plans; what two engines that met before decide is kept.
type planner struct {
	mu     sync.Mutex // protects shapes
	shapes *reshard.Shapes
}

// of returns the plan of terms.
func (p *planner) of(terms *handoff.Terms) (*reshard.Plan, error) {
	if known := terms.KnownPlan(); known != nil {
		return known, nil
	}
	return p.make(terms.Src.Engine.Side, terms.Dst.Engine.Side, terms.Request())
}

// make plans. Only looking for the shape is under the lock: requests are planned
// side by side, and engines that never met hold up no others.
func (p *planner) make(src, dst reshard.Side, r reshard.Request) (*reshard.Plan, error) {
	p.mu.Lock()
	shape := p.shapes.Find(src, dst)
	p.mu.Unlock()
	if shape == nil {
		var err error
		if shape, err = reshard.Prepare(src, dst); err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.shapes.Add(shape)
		p.mu.Unlock()
	}
	return shape.Plan(r)
}

// planGrants plans the same hand-off between one side as it is and ranks that are
// cut as the other side's, but laid out as this one. Every flow of it has the
// same bytes of this side's memory as the real one, in runs as long as they can
// be: what a grant opens depends on the bytes alone, and a permuted copy of a
// million pieces opens a few thousand; scattered blocks are taken in the order in
// which they lie.
func (p *planner) planGrants(terms *handoff.Terms, as handoff.Role) (*reshard.Plan, error) {
	src, dst, r := terms.Src.Engine.Side, terms.Dst.Engine.Side, terms.Request()
	if as == handoff.Source {
		dst = withLayoutOf(src, dst, terms.ContextTokens)
		r.Dst.Tables = contiguousTables(dst)
		r.Src.Tables = sortedTables(src, dst, r.Src.Tables, r.Tokens)
	} else {
		src = withLayoutOf(dst, src, terms.ContextTokens)
		r.Src.Tables = contiguousTables(src)
		r.Dst.Tables = sortedTables(dst, src, r.Dst.Tables, r.Tokens)
	}
	return p.make(src, dst, r)
}

// sortedTables has the blocks that are full of tokens to move in the order of
// memory. Without context ranks and windows every flow takes the same of each of
// them, so that their order changes no flow's bytes.
func sortedTables(own, other reshard.Side, tables [][]uint32, tokens kv.TokenRange) [][]uint32 {
	windowed := slices.ContainsFunc(own.Geometry.Layers, func(l kv.Layer) bool { return l.WindowTokens > 0 })
	if own.Parallelism.CP > 1 || other.Parallelism.CP > 1 || windowed {
		return tables
	}
	first, end := (tokens.Start+own.BlockTokens-1)/own.BlockTokens, tokens.End/own.BlockTokens
	sorted := make([][]uint32, len(tables))
	for i, table := range tables {
		sorted[i] = slices.Clone(table)
		if first < end && end <= len(table) {
			slices.Sort(sorted[i][first:end])
		}
	}
	return sorted
}

// withLayoutOf is an engine laid out as one and cut as the other. It has dense
// grids in any case: what counts is the order in which bytes lie within a block.
func withLayoutOf(laidOut, cut reshard.Side, contextTokens int) reshard.Side {
	s := laidOut
	s.BlockStride, s.Offsets = 0, nil
	s.Parallelism = cut.Parallelism
	if s.InterleaveTokens = cut.InterleaveTokens; s.InterleaveTokens == 0 {
		s.InterleaveTokens = cut.BlockTokens
	}
	s.Blocks = contextTokens/s.BlockTokens + 1 + s.InterleaveTokens/s.BlockTokens
	return s
}

// contiguousTables is a block table that goes through all blocks.
func contiguousTables(s reshard.Side) [][]uint32 {
	table := make([]uint32, s.Blocks)
	for i := range table {
		table[i] = uint32(i)
	}
	return [][]uint32{table}
}

// plan answers MakePlan.
func (t *Transceiver) plan(e handoff.MakePlan) {
	plan, err := t.planner.of(e.Terms)
	t.step(func(now handoff.Instant) []handoff.Effect {
		if e.As == handoff.Source {
			return t.source.Planned(now, e.Terms.Transfer, e.Session, plan, err)
		}
		return t.destination.Planned(now, e.Terms.Transfer, e.Session, plan, err)
	})
}

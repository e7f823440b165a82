package transceiver

import (
	"sync"

	"meridian/reshard"
	"meridian/transceiver/handoff"
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
// side by side.
func (p *planner) make(src, dst reshard.Side, r reshard.Request) (*reshard.Plan, error) {
	p.mu.Lock()
	shape, err := p.shapes.Prepare(src, dst)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return shape.Plan(r)
}

// planGrants plans the same hand-off between one side as it is and ranks that are
// cut as the other side's, but laid out as this one. Every flow of it has the
// same bytes of this side's memory as the real one, in runs as long as they can
// be: what a grant opens depends on the bytes alone, and a permuted copy of a
// million pieces opens a few thousand.
func (p *planner) planGrants(terms *handoff.Terms, as handoff.Role) (*reshard.Plan, error) {
	src, dst, r := terms.Src.Engine.Side, terms.Dst.Engine.Side, terms.Request()
	if as == handoff.Source {
		dst = withLayoutOf(src, dst, terms.ContextTokens)
		r.Dst.Tables = contiguousTables(dst)
	} else {
		src = withLayoutOf(dst, src, terms.ContextTokens)
		r.Src.Tables = contiguousTables(src)
	}
	return p.make(src, dst, r)
}

// withLayoutOf is an engine laid out as one and cut as the other.
func withLayoutOf(laidOut, cut reshard.Side, contextTokens int) reshard.Side {
	s := laidOut
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
			return t.holder.Planned(now, e.Terms.Transfer, e.Session, plan, err)
		}
		return t.taker.Planned(now, e.Terms.Transfer, e.Session, plan, err)
	})
}

package handoff

import (
	"encoding/binary"

	"meridian/internal/fields"
	"meridian/kv"
	"meridian/move/reshard"
)

// Terms is all that the plan of a hand-off depends on. Both homes have the same,
// and so has every follower.
type Terms struct {
	Transfer kv.ID
	Src, Dst Party
	// Tokens is what moves, of a context of ContextTokens.
	Tokens        kv.TokenRange
	ContextTokens int

	// plan is known where one of the machines' own process has made it. It does
	// not go over the wire: others make their own and compare digests.
	plan *reshard.Plan
}

// Request is what the planner is asked.
func (t *Terms) Request() reshard.Request {
	return reshard.Request{
		Tokens: t.Tokens, ContextTokens: t.ContextTokens, Src: t.Src.Holding, Dst: t.Dst.Holding,
		Turn: binary.LittleEndian.Uint64(t.Transfer[:8]),
	}
}

// KnownPlan is the plan that goes with the terms, where it was made in this process;
// else nil.
func (t *Terms) KnownPlan() *reshard.Plan { return t.plan }

// sameRanks reports whether other terms are about as many ranks on either side.
func (t *Terms) sameRanks(other *Terms) bool {
	if t == nil || other == nil {
		return t == other
	}
	return len(t.Src.Engine.Ranks) == len(other.Src.Engine.Ranks) && len(t.Dst.Engine.Ranks) == len(other.Dst.Engine.Ranks)
}

// layers is how many the model has.
func (t *Terms) layers() int { return len(t.Src.Engine.Side.Geometry.Layers) }

func (t *Terms) each(c fields.Codec) {
	c.ID(&t.Transfer)
	t.Src.each(c)
	t.Dst.each(c)
	c.Int(&t.Tokens.Start, &t.Tokens.End, &t.ContextTokens)
}

package policy

import "meridian/kv"

// draft is the account of a decision while it is made: what is left of the
// limits, and the decision so far.
type draft struct {
	s *Snapshot
	d *Decision
	// tokens, sequences and blocks are left.
	tokens, sequences, blocks int32
	// chunk is how many of the tokens prompts may have; who decodes has one in any
	// case.
	chunk int32
	// chunked: a request computes more than one token, so the next step differs.
	chunked bool
	// slack counts the runs by how many tokens still fit into their blocks.
	slack []int32
}

func (t *draft) begin(s *Snapshot, d *Decision) {
	d.reset()
	t.s, t.d, t.chunked = s, d, false
	t.tokens, t.sequences, t.blocks = s.Limits.Tokens, s.Limits.Sequences, s.FreeBlocks
	t.chunk = t.tokens
	size := int(s.Limits.BlockTokens)
	if cap(t.slack) < size {
		t.slack = make([]int32, size)
	}
	t.slack = t.slack[:size]
	clear(t.slack)
}

// run lets a request compute what it needs, or a part of it that fits into the
// step's tokens. It says false, and changes nothing, if blocks or tokens are
// missing.
func (t *draft) run(i int32) bool {
	r := &t.s.Requests[i]
	tokens := t.share(r)
	more := t.s.Limits.need(r, tokens)
	if more > t.blocks || tokens <= 0 {
		return false
	}
	t.blocks -= more
	t.tokens -= tokens
	t.sequences--
	t.d.Run = append(t.d.Run, Allotment{Request: i, Tokens: tokens})
	if r.Decodes() {
		size := int64(t.s.Limits.BlockTokens)
		t.slack[min(size-1, int64(r.Blocks+more)*size-int64(r.Length)-int64(tokens))]++
	} else {
		t.chunk -= tokens
		t.chunked = true
	}
	return true
}

// share is how many tokens r would compute now.
func (t *draft) share(r *Request) int32 {
	if r.Decodes() {
		return min(1, t.tokens)
	}
	return min(r.Pending, t.chunk, t.tokens)
}

// keepTo makes prompts so short that the step takes no longer than that, with
// what it takes now; but they get a thirty-second of a step's tokens.
func (t *draft) keepTo(budget Instant) {
	c, all := &t.s.Costs, t.s.Limits.Tokens
	if c.PrefillToken <= 0 {
		return
	}
	inTime := int32(min(max(0, budget-c.Step)/c.PrefillToken, Instant(all)))
	t.chunk = min(t.chunk, max((all+31)/32, inTime))
}

// drainSteps is in how many steps prompts are to be computed at the latest.
const drainSteps = 256

// cut makes prompts so short that they cost those who think nothing. Where
// prompts are what holds everything up, they get more; and where most of those
// who decode are read, no reader reads faster for it, and the prompts' own first
// tokens are what people wait for.
func (t *draft) cut() {
	s := t.s
	if s.Costs.FreeTokens == 0 {
		return
	}
	idle := s.FreeBlocks > s.Limits.Blocks/4
	decoding, thinking, prompts := 0, 0, int64(0)
	for i := range s.Requests {
		switch r := &s.Requests[i]; {
		case r.Holds() && r.Decodes():
			decoding++
			if r.Phase == kv.Think {
				thinking++
			}
		case r.Holds() || idle && r.State == Waiting:
			prompts += int64(r.Pending)
		}
	}
	if thinking > 0 && 2*thinking >= decoding {
		t.chunk = min(t.chunk, max(s.Costs.FreeTokens, int32(min(prompts/drainSteps, forever)), 32))
	}
}

// fits says whether all that r has to compute finds blocks, not only its part of
// this step: one that came in for its first chunk alone would be thrown out with
// it again.
func (t *draft) fits(r *Request) bool { return t.s.Limits.need(r, r.Pending) <= t.blocks }

// full says that no other request can take part.
func (t *draft) full() bool { return t.tokens <= 0 || t.sequences <= 0 }

// steps is for how many steps those who decode find blocks, this one among
// them, if nothing else takes any.
func (t *draft) steps() int32 {
	if t.chunked {
		return 1
	}
	n := int32(len(t.d.Run))
	if n == 0 {
		return forever
	}
	// Every round of BlockTokens steps takes a block for each run; within a round
	// those with the least slack come first.
	size := t.s.Limits.BlockTokens
	rounds, left := t.blocks/n, t.blocks%n
	if rounds > (forever-1)/size-1 {
		return forever
	}
	steps := 1 + rounds*size
	for _, takes := range t.slack {
		if takes > left {
			break
		}
		left -= takes
		steps++
	}
	return steps
}

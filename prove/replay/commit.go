package replay

import (
	"slices"

	"meridian/decide/governor"
	"meridian/decide/policy"
	"meridian/kv"
)

// commit carries out the first steps of the plan; what is left of it begins
// where they end.
func (e *engine) commit(steps int32) {
	p := &e.plan
	end := p.boundary(steps)
	e.cell.tally.work.Steps += int64(steps)
	e.busy += end - p.start
	e.cell.tally.gaps = gaps{}
	left := false
	e.ended = e.ended[:0]
	for _, run := range p.runs {
		r := &e.snap.Requests[run.Request]
		r.LastServed = instant(end)
		if r.Decodes() {
			e.grow(run.Request, steps)
		} else {
			e.compute(run.Request, run.Tokens)
		}
		left = left || r.Phase == kv.Complete
	}
	// Those who end together free their blocks in the order in which they came: a
	// policy's order may change within a plan, and would not be asked for again.
	slices.Sort(e.ended)
	for _, i := range e.ended {
		e.finish(i, end)
	}
	e.cell.tally.addGaps(p, steps)
	for range steps { // as the governor of an engine hears of them
		e.calibration.Stepped(instant(p.first), &p.work)
		p.first += p.growth
		p.work.Context += int64(p.work.Sequences)
	}
	p.start = end
	p.steps -= steps
	if left || len(e.ended) > 0 {
		e.sweep()
	}
	if p.steps > 0 { // the next step has begun, with blocks for its tokens
		for _, run := range p.runs {
			e.take(run.Request, e.blocksFor(e.snap.Requests[run.Request].Length+1))
		}
	}
}

// grow lets a request decode so many tokens, all of one phase.
func (e *engine) grow(i, steps int32) {
	r := &e.snap.Requests[i]
	r.Length += steps
	if blocks := e.blocksFor(r.Length); blocks > r.Blocks {
		e.take(i, blocks)
	}
	e.found(i, steps)
}

// compute lets a request compute a part of what it must before its next token,
// and finds that token if it was the last part.
func (e *engine) compute(i, tokens int32) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	r.Length += tokens
	r.Pending -= tokens
	if r.Phase == kv.Prefill {
		e.promptTokens -= int64(tokens)
		e.snap.Tenants[s.tenant].Served += int64(tokens)
		e.cell.tally.tokens.Prompt += int64(tokens)
	}
	e.share(i)
	if r.Pending > 0 {
		return
	}
	if s.decodeAt != nil {
		e.handOver(i)
		return
	}
	r.Pending = 1
	if r.Phase == kv.Prefill {
		e.enter(i, e.plan.boundary(1))
	}
	e.found(i, 1)
}

// enter begins decoding, in the phase that the request has next.
func (e *engine) enter(i int32, now ps) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	if s.think > 0 {
		r.Phase, s.until = kv.Think, s.think
		return
	}
	r.Phase, s.until = kv.Output, s.output
	s.thoughtEnd, r.ThoughtEnd = now, instant(now)
}

// found counts tokens of one phase that were found, one at the end of each of the
// plan's first steps, and changes the phase, or notes the end, where it is reached.
func (e *engine) found(i, steps int32) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	now := e.plan.boundary(steps)
	e.cell.tally.found(r, s, &e.plan, steps)
	e.snap.Tenants[s.tenant].Served += 2 * int64(steps)
	r.Since += steps
	s.lastToken = now
	s.until -= steps
	if r.Phase == kv.Think {
		r.Think += steps
		if s.until > 0 {
			return
		}
		s.thoughtEnd, r.ThoughtEnd = now, instant(now)
		r.Phase, s.until = kv.Output, s.output
		if s.output > 0 {
			e.copyThought(i, now)
			return
		}
	} else {
		if r.Output == 0 {
			r.FirstOutput = instant(e.plan.boundary(1))
		}
		r.Output += steps
		if s.until > 0 {
			return
		}
	}
	e.ended = append(e.ended, i)
}

// finish ends a request.
func (e *engine) finish(i int32, now ps) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	e.release(s, e.holding(i))
	e.leave(i)
	e.cell.finished(r, s, now)
}

// leave takes a request out of the engine's account.
func (e *engine) leave(i int32) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	if r.State == policy.Running {
		e.running--
	}
	e.snap.Tenants[s.tenant].Leave()
	r.Phase = kv.Complete
}

// handOver gives a computed prompt to the engine that decodes. The blocks stay
// until they have been fetched, or until their lease ends. An engine that holds
// too many for others declines, and the other one computes the prompt itself.
func (e *engine) handOver(i int32) {
	s := e.seqs[i]
	h := e.holding(i)
	e.leave(i)
	to := s.decodeAt
	s.decodeAt, s.started, s.shared = nil, false, 0
	now := e.plan.boundary(1)
	held := h.blocks + h.chunks*e.cache.blocks
	if limit := maxHeldFraction * float64(e.snap.Limits.Blocks); float64(e.lentBlocks+held) > limit {
		e.release(s, h)
		s.remote = e.cell.store.held(s)
	} else {
		s.lender, s.lent, s.remote = e, h, s.prompt-1
		e.lentBlocks += held
		e.start(transfer{done: now + lease, kind: leaseEnd, seq: s})
	}
	e.cell.deliver(to, s)
}

// What doors allow by default.
const (
	maxHeldFraction = 0.3
	lease           = 30 * second
)

// force ends the thought of request i with this step.
func (e *engine) force(i int32) {
	r, s := &e.snap.Requests[i], e.seqs[i]
	if r.Phase != kv.Think || s.until <= 1 {
		return
	}
	s.think, s.until, s.forced = r.Think+1, 1, governor.HardCap
}

package engine

import (
	"math"

	"meridian/engine/batch"
	"meridian/serve/door/doorpb"
	"meridian/serve/openai"
)

// apply carries a decision out. What it names that is not there any more is passed over,
// and so is what cannot be: the governor is another process.
func (e *Engine) apply(d *doorpb.Decision) {
	e.counters.Decided++
	if d.GetStep() < e.number {
		e.counters.Late++
	}
	e.evict(d.GetEvict())
	// A list names a sequence once: each time is answered, and an answer weighs more.
	named := make(map[uint64]bool)
	for _, p := range d.GetPreempt() {
		if !named[p.GetSequence()] {
			named[p.GetSequence()] = true
			e.preempt(p)
		}
	}
	clear(named)
	for _, number := range d.GetRecall() {
		if c := e.byNumber[number]; c != nil && !named[number] {
			named[number] = true
			e.recall(c)
		}
	}
	for _, m := range d.GetCopyOut() {
		e.copyOut(m)
	}
	for _, number := range d.GetPause() {
		if c := e.byNumber[number]; c != nil && !e.stood {
			e.scheduler.Pause(&c.sequence, batch.Governed)
		}
	}
	for _, number := range d.GetResume() {
		if c := e.byNumber[number]; c != nil && c.swap == nil { // else it is recalled first
			e.scheduler.Unpause(&c.sequence, batch.Governed)
		}
	}
	for _, f := range d.GetForce() {
		if c := e.byNumber[f.GetSequence()]; c != nil && e.validTokens(f.GetTokens()) {
			e.force(c, f.GetTokens(), forcedAs(f.GetReason()))
		}
	}
	for _, number := range d.GetFork() {
		if c := e.byNumber[number]; c != nil {
			e.fork(c)
		}
	}
	e.order(d)
}

// forcedAs is a reason in the words that answers use.
func forcedAs(reason string) string {
	switch reason {
	case openai.ForcedConverged, openai.ForcedOverthinking:
		return reason
	}
	return openai.ForcedHardCap
}

// preempt takes the blocks of a sequence: they are to be copied out first, or it is
// computed anew. Each time it finds a token before it loses them again, whatever the
// governor wants: else it might never find one.
func (e *Engine) preempt(p *doorpb.Preempt) {
	c := e.byNumber[p.GetSequence()]
	if c == nil || c.sequence.State() == batch.Fetching {
		return
	}
	if e.stood || c.swap == nil && c.lost == len(c.sequence.Tokens) {
		e.counters.Unheeded++
		return
	}
	if p.GetSwap() && e.swapOut(c) {
		return
	}
	e.dropFork(c)
	e.dropEarly(c.request)
	if e.scheduler.Preempt(&c.sequence) {
		c.lost = len(c.sequence.Tokens)
		e.counters.Stopped++
	}
	e.stopped(c)
}

// order is who runs first. Who is paused gives its blocks up first, the youngest of them
// before the others; behind them go those that the order does not name, and then its last.
func (e *Engine) order(d *doorpb.Decision) {
	var o batch.Order
	tokens := d.GetOrderTokens()
	for i, number := range d.GetOrder() {
		if c := e.byNumber[number]; c != nil {
			a := batch.Allotment{Sequence: &c.sequence}
			if i < len(tokens) {
				a.Tokens = int(min(tokens[i], uint32(e.options.StepTokens)))
			}
			o.Run = append(o.Run, a)
		}
	}
	for i := len(e.known) - 1; i >= 0; i-- {
		if c := e.known[i]; c.swap == nil && c.sequence.Paused()&batch.Governed != 0 {
			o.Victims = append(o.Victims, &c.sequence)
		}
	}
	e.scheduler.Obey(o)
}

// fork is a choice's context with the end of its thought behind it: what the model would
// say then is looked at once, and nothing of it stays.
type fork struct {
	choice   *choice
	sequence *batch.Sequence
	tokens   int // of the thought that was forked
	logits   []float32
}

// fork asks what would follow if a thought ended here. Where there is no room for the
// question the governor hears that there is no answer; it asks again.
func (e *Engine) fork(c *choice) {
	if c.fork != nil {
		return // the answer comes
	}
	if end := e.endTokens(); len(end) > 0 && c.thinks() {
		if q, made := e.scheduler.Fork(&c.sequence, end...); made {
			c.fork = &fork{choice: c, sequence: q, tokens: c.thought.machine.Think()}
			q.Owner = c.fork
			return
		}
	}
	e.tellForked(c, float32(math.NaN()))
}

// tellForked answers the question for a fork; NaN: it was not measured.
func (e *Engine) tellForked(c *choice, nats float32) {
	if c.told.begun && e.terms != nil {
		e.columns.Forked = append(e.columns.Forked, c.governed)
		e.columns.ForkNats = append(e.columns.ForkNats, nats)
	}
}

// forked tells how undecided the model is behind the end of the thought.
func (e *Engine) forked(f *fork) {
	nats := entropyOf(f.logits)
	if t := f.choice.script.trace; t != nil {
		if played, is := at(t.Forks, f.tokens); is {
			nats = played
		}
	}
	e.counters.Forked++
	e.tellForked(f.choice, nats)
	e.endFork(f.choice)
}

// dropFork gives a choice's fork up, if it has one: the governor does not wait for the answer.
func (e *Engine) dropFork(c *choice) {
	if c.fork != nil {
		e.tellForked(c, float32(math.NaN()))
		e.endFork(c)
	}
}

// endFork forgets a choice's fork, if it has one.
func (e *Engine) endFork(c *choice) {
	f := c.fork
	if f == nil {
		return
	}
	c.fork = nil
	e.scheduler.Remove(f.sequence)
	e.spareLogits(&f.logits)
}

package policy

import "meridian/kv"

// DualQueue is the scheduler of the Meridian book: answers first; thoughts, and
// prompts, fill what is left, up to a multiple of what answers may have. A step
// is to take no longer than the budget of whom it serves: while answers take
// part, prompts are cut into chunks that keep the rhythm of the stream.
//
// A sixteenth of a step's seats and tokens is kept for thoughts whatever the
// answers want. Of thoughts that hold blocks those that were left out longest
// go first, so with n of them each is served once in n ÷ (seats ÷ 16) steps,
// rounded up, unless it lacks a block. And no request is admitted before one that
// came earlier, so one that waits for blocks waits no longer than those who
// hold them run.
type DualQueue struct {
	ranking
	think, output Instant
	multiplier    float64
	classify      func(*Request) uint8
	thoughts      int32 // that hold blocks
}

// Classes of DualQueue.
const (
	dualAnswers = iota
	dualOverdue // left out by the last step: they go before those who took part
	dualThoughts
)

func newDualQueue(o Options) *DualQueue {
	p := &DualQueue{think: o.ThinkTPOTBudget, output: o.OutputTPOTBudget, multiplier: o.ThinkBatchMultiplier}
	p.guests = dualAnswers + 1
	p.reasons[dualAnswers], p.reasons[dualOverdue], p.reasons[dualThoughts] = Answering, Thinking, Thinking
	p.classify = func(r *Request) uint8 {
		if r.Phase != kv.Output && r.Holds() {
			p.thoughts++
		}
		switch {
		case r.Phase == kv.Output:
			return dualAnswers
		case r.State == Paused:
			return dualOverdue
		}
		return dualThoughts
	}
	return p
}

// Name is "dual-queue".
func (p *DualQueue) Name() string { return "dual-queue" }

// Decide implements Policy.
func (p *DualQueue) Decide(s *Snapshot, d *Decision) {
	p.thoughts = 0
	p.rank(s, d, p.classify)
	l := &s.Limits
	var seats, tokens int32
	if p.thoughts > 0 {
		seats, tokens = (l.Sequences+15)/16, (l.Tokens+15)/16
	}
	answers := int32(float64(l.Tokens) / (1 + p.multiplier))
	p.sequences -= seats
	p.tokens = l.Tokens - tokens
	p.serveBelow(dualOverdue)
	p.sequences += seats
	used := l.Tokens - tokens - p.tokens
	p.tokens = min(l.Tokens-used, max(tokens, int32(p.multiplier*float64(answers))))
	if len(d.Run) > 0 {
		p.keepTo(p.output)
	} else {
		p.keepTo(p.think)
	}
	p.serve()
}

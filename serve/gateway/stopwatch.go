package gateway

import (
	"time"

	"meridian/see/ledger"
)

// stopwatch takes the times of one request. Times are arguments.
type stopwatch struct {
	began, admitted  time.Time
	prefill, handoff time.Duration

	first, visible time.Time // tokens
	thoughtEnd     time.Time // the last that was thought before anything was said
	last           time.Time
	lastThought    bool // the last token was one of a thought
	think, answer  rhythm
}

// rhythm is time between tokens.
type rhythm struct {
	sum time.Duration
	gap int
}

// sample is what a chunk of a stream says.
type sample struct {
	thought, answered bool
	visible           bool // of an answer, and more than white space
	tokens            int  // 0 where they are not counted
}

// take notes a chunk, and returns the time between tokens that it ends, with
// how many tokens it is for. Gaps across the end of a thought are nobody's.
func (s *stopwatch) take(now time.Time, c sample) (gap time.Duration, tokens int, think bool) {
	if !c.thought && !c.answered && c.tokens == 0 {
		return 0, 0, false
	}
	// A chunk with both is where a thought ends. One with neither, whose text is
	// held back, is of the kind of the one before.
	thought := c.thought && !c.answered || !c.answered && s.lastThought
	tokens = max(c.tokens, 1)
	switch {
	case s.first.IsZero():
		s.first = now
		tokens = 0
	case thought != s.lastThought:
		tokens = 0
	default:
		gap = now.Sub(s.last) / time.Duration(tokens)
		r := &s.answer
		if thought {
			r = &s.think
		}
		r.sum += now.Sub(s.last)
		r.gap += tokens
	}
	if c.visible && s.visible.IsZero() {
		s.visible = now
	}
	if c.thought && s.visible.IsZero() {
		s.thoughtEnd = now
	}
	s.last, s.lastThought = now, thought
	return gap, tokens, thought
}

func (r rhythm) mean() float64 {
	if r.gap == 0 {
		return 0
	}
	return ms(r.sum) / float64(r.gap)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (s *stopwatch) since(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return ms(t.Sub(s.began))
}

// latency is what the times come to when the request ends.
func (s *stopwatch) latency(now time.Time) ledger.Latency {
	l := ledger.Latency{
		QueueMs: s.since(s.admitted), PrefillMs: ms(s.prefill), HandoffMs: ms(s.handoff),
		TTFTMs: s.since(s.first), TTFVTMs: s.since(s.visible),
		ThinkITLMs: s.think.mean(), AnswerITLMs: s.answer.mean(), TotalMs: s.since(now),
	}
	if !s.thoughtEnd.IsZero() && !s.visible.IsZero() {
		l.TTOTMs = ms(s.visible.Sub(s.thoughtEnd))
	}
	return l
}

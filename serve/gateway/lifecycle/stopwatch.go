package lifecycle

import (
	"time"

	"meridian/see/ledger"
	"meridian/serve/openai"
)

// Stopwatch takes the times of one request. Times are arguments.
type Stopwatch struct {
	Began, Admitted  time.Time
	Prefill, Handoff time.Duration

	first, visible time.Time // tokens
	thoughtEnd     time.Time // the last that was thought before anything was said
	Last           time.Time
	lastThought    bool // the last token was one of a thought
	think, answer  rhythm
}

// rhythm is time between tokens.
type rhythm struct {
	sum time.Duration
	gap int
}

// Sample is what a chunk of a stream says.
type Sample struct {
	Thought, Answered bool
	Visible           bool // of an answer, and more than white space
	Tokens            int  // 0 where they are not counted
}

// Take notes a chunk, and returns the time between tokens that it ends, with
// how many tokens it is for. A gap across the end of a thought counts for neither phase.
func (s *Stopwatch) Take(now time.Time, c Sample) (gap time.Duration, tokens int, think bool) {
	if !c.Thought && !c.Answered && c.Tokens == 0 {
		return 0, 0, false
	}
	// A chunk with both is where a thought ends. One with neither, whose text is
	// held back, is of the kind of the one before.
	thought := c.Thought && !c.Answered || !c.Answered && s.lastThought
	tokens = max(c.Tokens, 1)
	switch {
	case s.first.IsZero():
		s.first = now
		tokens = 0
	case thought != s.lastThought:
		tokens = 0
	default:
		gap = now.Sub(s.Last) / time.Duration(tokens)
		r := &s.answer
		if thought {
			r = &s.think
		}
		r.sum += now.Sub(s.Last)
		r.gap += tokens
	}
	if c.Visible && s.visible.IsZero() {
		s.visible = now
	}
	if c.Thought && s.visible.IsZero() {
		s.thoughtEnd = now
	}
	s.Last, s.lastThought = now, thought
	return gap, tokens, thought
}

func (r rhythm) mean() float64 {
	if r.gap == 0 {
		return 0
	}
	return Milliseconds(r.sum) / float64(r.gap)
}

// Milliseconds is a time as records have it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Since is how long after the beginning something was, 0 for what was not.
func (s *Stopwatch) Since(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return Milliseconds(t.Sub(s.Began))
}

// Latency is what the times come to when the request ends.
func (s *Stopwatch) Latency(now time.Time) ledger.Latency {
	l := ledger.Latency{
		QueueMs: s.Since(s.Admitted), PrefillMs: Milliseconds(s.Prefill), HandoffMs: Milliseconds(s.Handoff),
		TTFTMs: s.Since(s.first), TTFVTMs: s.Since(s.visible),
		ThinkITLMs: s.think.mean(), AnswerITLMs: s.answer.mean(), TotalMs: s.Since(now),
	}
	if !s.thoughtEnd.IsZero() && !s.visible.IsZero() {
		l.TTOTMs = Milliseconds(s.visible.Sub(s.thoughtEnd))
	}
	return l
}

// Report takes in what the engine knows better.
func (s *Stopwatch) Report(r *openai.Report) {
	if s.Prefill == 0 {
		s.Prefill = openai.Milliseconds(r.PrefillMs)
	}
	s.Handoff = openai.Milliseconds(r.HandoffMs)
}

package lifecycle

import (
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/openai"
)

// Stopwatch takes the times of one request. Times are arguments.
type Stopwatch struct {
	Began, Admitted  kv.Instant
	Prefill, Handoff kv.Instant

	first, visible kv.Instant // tokens
	thoughtEnd     kv.Instant // the last that was thought before anything was said
	Last           kv.Instant
	lastThought    bool // the last token was one of a thought
	think, answer  rhythm
}

// rhythm is time between tokens.
type rhythm struct {
	sum kv.Instant
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
func (s *Stopwatch) Take(now kv.Instant, c Sample) (gap kv.Instant, tokens int, think bool) {
	if !c.Thought && !c.Answered && c.Tokens == 0 {
		return 0, 0, false
	}
	// A chunk with both is where a thought ends. One with neither, whose text is
	// held back, is of the kind of the one before.
	thought := c.Thought && !c.Answered || !c.Answered && s.lastThought
	tokens = max(c.Tokens, 1)
	switch {
	case s.first == 0:
		s.first = now
		tokens = 0
	case thought != s.lastThought:
		tokens = 0
	default:
		gap = (now - s.Last) / kv.Instant(tokens)
		r := &s.answer
		if thought {
			r = &s.think
		}
		r.sum += now - s.Last
		r.gap += tokens
	}
	if c.Visible && s.visible == 0 {
		s.visible = now
	}
	if c.Thought && s.visible == 0 {
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
func Milliseconds(d kv.Instant) float64 { return float64(d) / float64(kv.Millisecond) }

// Since is how long after the beginning something was, 0 for what was not.
func (s *Stopwatch) Since(t kv.Instant) float64 {
	if t == 0 {
		return 0
	}
	return Milliseconds(t - s.Began)
}

// Latency is what the times come to when the request ends.
func (s *Stopwatch) Latency(now kv.Instant) ledger.Latency {
	l := ledger.Latency{
		QueueMs: s.Since(s.Admitted), PrefillMs: Milliseconds(s.Prefill), HandoffMs: Milliseconds(s.Handoff),
		TTFTMs: s.Since(s.first), TTFVTMs: s.Since(s.visible),
		ThinkITLMs: s.think.mean(), AnswerITLMs: s.answer.mean(), TotalMs: s.Since(now),
	}
	if s.thoughtEnd != 0 && s.visible != 0 {
		l.TTOTMs = Milliseconds(s.visible - s.thoughtEnd)
	}
	return l
}

// told is a time that an engine tells.
func told(ms float64) kv.Instant { return kv.Instant(openai.Milliseconds(ms).Microseconds()) }

// Report takes in what the engine knows better.
func (s *Stopwatch) Report(r *openai.Report) {
	if s.Prefill == 0 {
		s.Prefill = told(r.PrefillMs)
	}
	s.Handoff = told(r.HandoffMs)
}

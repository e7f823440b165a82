package roster

import (
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// LearnTokens remembers which tokens a text prompt came to.
func (r *Roster) LearnTokens(p placement.Prefix, tokens []uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lexicon.Learn(p, tokens)
}

// Recall finds out what a prompt's tokens are, where an earlier one tells.
func (r *Roster) Recall(c *request.Request) {
	if !c.IsText() || c.Whole || !r.followsCaches() {
		return
	}
	r.mu.Lock()
	ids, whole := r.lexicon.Recall(c.Prefix)
	r.mu.Unlock()
	if c.IDs, c.Partly = ids, !whole; whole {
		c.Tokens = len(ids)
	}
}

// Learns: what the prompt's tokens are would help to place the next one that begins alike.
func (r *Roster) Learns(c *request.Request) bool {
	return c.IsText() && !c.Whole && (len(c.IDs) == 0 || c.Partly) && r.followsCaches()
}

// Underway is how many chunks of prompts an engine computes, or is about to.
func (r *Roster) Underway(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.coming.Len(key)
}

// Note remembers that an engine has a prompt in its cache.
func (r *Roster) Note(key string, p placement.Prefix, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.engines[key] != nil {
		r.index.Note(key, p, Instant(now))
	}
}

// Computes counts a prompt as work that waits at an engine, and remembers that what
// begins alike will be there, until the end that it returns is called, once.
func (r *Roster) Computes(e *Engine, c *request.Request) (end func()) {
	e.Waiting.Add(int64(c.Tokens))
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.coming.Begin(e.Key, c.Prefix)
	return func() {
		e.Waiting.Add(-int64(c.Tokens))
		r.mu.Lock()
		defer r.mu.Unlock()
		r.coming.End(e.Key, begun)
	}
}

// Paced takes in how long an engine took for a prompt: what it computed, and what it
// fetched of it, about. What it held itself is among what it found, and is not told apart. Without
// a report it has told what it was spared, and no more.
func (r *Roster) Paced(e *Engine, report *openai.Report, s request.Spared) {
	if e.Tells.Store(true); report == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.pace.Computed(s.Of-s.Tokens, openai.Milliseconds(report.PrefillMs).Microseconds())
	if report.KV == openai.KVFound {
		e.pace.Fetched(min(report.KVTokens, s.Of), openai.Milliseconds(report.HandoffMs).Microseconds())
	}
}

// storedWeight is what was measured of an engine, 0 while it was not.
func (r *Roster) storedWeight(e *Engine) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.pace.StoredWeight()
}

// Misjudged: an engine did not hold what it should have; what is thought of it
// is wrong.
func (r *Roster) Misjudged(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.Forget(key)
	if e := r.engines[key]; e != nil {
		r.bound(e)
	}
}

// Holds is how many chunks of a prompt an engine was sent before.
func (r *Roster) Holds(key string, p placement.Prefix, now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index.Held(key, p, Instant(now.Add(-prefixLife)))
}

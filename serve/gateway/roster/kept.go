package roster

import (
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Bounds of what is believed of the cell's object cache: how many hashes, how long
// after their last use, and how long one that was not found is not looked for again by
// sending a prompt straight to decode.
const (
	keptHashes = 1 << 18
	keptLife   = time.Hour
	keptDoubt  = 5 * time.Minute
	// usualUnit is of an engine whose answers alone say that it finds prefixes.
	usualUnit = 64
)

// Shares: it keeps prefixes in the cell's object cache.
func (e *Engine) Shares() bool { return e.Unit.Load() > 0 && !e.Stray.Load() }

// fetches: it can be sent a prompt because the cell keeps its prefix. One that would
// not tell what it found is not: a belief that no answer corrects could stay wrong.
func (e *Engine) fetches() bool {
	return e.Shares() && (e.Tells.Load() || e.About.Load().Kind == openai.KindMeridian)
}

// NoteKept remembers that a prompt's cache was given to the object cache.
func (r *Roster) NoteKept(p placement.Prefix, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Note(p, Instant(now))
}

// KeptOf is how many chunks of a prompt the object cache is believed to keep.
func (r *Roster) KeptOf(p placement.Prefix, now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept.Held(p, Instant(now))
}

// ComputedAhead remembers that an engine has computed a prompt for which no request came
// yet; one that shares has given it to the object cache.
func (r *Roster) ComputedAhead(e *Engine, p placement.Prefix, now time.Time) {
	r.Note(e.Key, p, now)
	if e.Shares() {
		r.NoteKept(p, now)
	}
}

// forgetKept drops what is believed of the object cache when no engine shares it any
// more: its memory has gone with the agents. The caller holds mu.
func (r *Roster) forgetKept() {
	for _, e := range r.engines {
		if e.Shares() {
			return
		}
	}
	r.kept.Forget()
}

// FoundKept: an engine has fetched the first tokens of a prompt.
func (r *Roster) FoundKept(e *Engine, p placement.Prefix, s request.Spared, tokens int, now time.Time) {
	e.Unit.CompareAndSwap(0, usualUnit)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Found(p, p.Within(tokens, s.Of), Instant(now))
}

// MissedKept: an engine had less of a prompt than was believed, which is believed no
// more. believed is in tokens of about as many as the request has.
func (r *Roster) MissedKept(c *request.Request, s request.Spared, believed int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Texts are measured in proportion, so it must be before what was believed to help.
	last := c.Prefix.Within(believed, c.Tokens) - 1
	r.kept.Missed(c.Prefix, min(c.Prefix.Within(s.Tokens, s.Of), last), Instant(now))
}

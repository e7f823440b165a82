package gateway

import (
	"time"

	"meridian/decide/placement"
	"meridian/see/ledger"
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

// shares: it keeps prefixes in the cell's object cache.
func (e *engine) shares() bool { return e.unit.Load() > 0 && !e.stray.Load() }

// fetches: it can be sent a prompt because the cell keeps its prefix. One that would
// not tell what it found is not: a belief that nobody corrects could stay wrong.
func (e *engine) fetches() bool {
	return e.shares() && (e.tells.Load() || e.about.Load().kind == openai.KindMeridian)
}

// noteKept remembers that a prompt's cache was given to the object cache.
func (r *roster) noteKept(p placement.Prefix, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Note(p, now.UnixNano())
}

// computedAhead remembers that an engine has computed a prompt for which no request came
// yet; one that shares has given it to the object cache.
func (r *roster) computedAhead(e *engine, p placement.Prefix, now time.Time) {
	r.note(e.key, p, now)
	if e.shares() {
		r.noteKept(p, now)
	}
}

// forgetKept drops what is believed of the object cache when nobody shares it any
// more: its memory has gone with the agents. The caller holds mu.
func (r *roster) forgetKept() {
	for _, e := range r.engines {
		if e.shares() {
			return
		}
	}
	r.kept.Forget()
}

// foundKept: the first tokens of a prompt were fetched.
func (r *roster) foundKept(p placement.Prefix, s spared, tokens int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.Found(p, p.Within(tokens, s.of), now.UnixNano())
}

// missedKept: an engine had less of a prompt than was believed, which is believed no
// more. believed is in tokens of about as many as the request has.
func (r *roster) missedKept(c *request.Request, s spared, believed int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Texts are measured in proportion, so it must be before what was believed to help.
	last := c.Prefix.Within(believed, c.Tokens) - 1
	r.kept.Missed(c.Prefix, min(c.Prefix.Within(s.tokens, s.of), last), now.UnixNano())
}

// spared is how many tokens of a prompt an engine did not compute, of how many.
type spared struct{ tokens, of int }

// spared reads it from what an engine tells, in its own member or as OpenAI has it;
// told is false where it does not.
func (e *engine) spared(report *openai.Report, usage *openai.Usage) (s spared, told bool) {
	switch {
	case report != nil && report.PromptTokens > 0:
		s = spared{report.CachedTokens, report.PromptTokens}
	case usage.PromptDetails != nil && usage.PromptTokens > 0:
		s = spared{usage.PromptDetails.CachedTokens, usage.PromptTokens}
	default:
		return s, false
	}
	s.of = min(s.of, openai.MaxUsage)
	s.tokens = min(max(s.tokens, 0), s.of)
	e.tells.Store(true)
	return s, true
}

// isLess tells whether an engine was spared less than was believed to be kept. What a
// text's chunks come to in tokens is only about so, so that one or two missing say
// nothing.
func (s spared) isLess(c *request.Request, believed int, unit int64) bool {
	if !c.IsText() {
		return s.tokens < believed
	}
	expected := believed * s.of / max(c.Tokens, 1)
	chunk := c.Prefix.Tokens(1, s.of)
	return s.tokens < expected-max(chunk, int(unit))-expected/8
}

// Ends of requests that went straight to decode because their prefix was believed to
// be stored, in the order of counters.stored.
var storedEnds = []string{"found", "less", "untold"}

const (
	storedFound = iota
	storedLess
	storedUntold
)

// looked takes in what an engine that had a prompt to compute found of it.
func (x *exchange) looked(e *engine, report *openai.Report, s spared, told bool) {
	now := time.Now()
	if told && report != nil {
		x.g.roster.paced(e, report, s)
	}
	if told && report != nil && report.KV == openai.KVFound && report.KVTokens > 0 {
		e.unit.CompareAndSwap(0, usualUnit)
		x.g.roster.foundKept(x.request.Prefix, s, min(report.KVTokens, s.of), now)
	}
	if x.believed == 0 || !e.shares() || x.request.Whole {
		return
	}
	end := storedUntold
	if told {
		x.rec.Stored.Spared, x.rec.Stored.Of = s.tokens, s.of
		if end = storedFound; s.isLess(x.request, x.believed, e.unit.Load()) {
			end = storedLess
			x.g.roster.missedKept(x.request, s, x.believed, now)
		}
	}
	if x.straight {
		x.straight = false
		x.g.count.stored[end].Add(1)
	}
}

// believe records what the engines of a choice were believed to be able to fetch.
func (x *exchange) believe(candidates []placement.Engine, c placement.Choice) {
	x.believed, x.straight, x.rec.Stored = 0, c.PrefillWhy.Kind == placement.Stored, nil
	for _, e := range candidates {
		if e.ID == c.Decode || e.ID == c.Prefill {
			x.believed = max(x.believed, e.Stored)
		}
	}
	if x.believed > 0 {
		x.rec.Stored = &ledger.Stored{Tokens: min(x.believed, x.request.Tokens), Prompt: x.request.Tokens}
	}
}

package lifecycle

import (
	"meridian/decide/placement"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Belief is what was thought of a prompt's cache when the request was placed, to be compared
// with what engines tell.
type Belief struct {
	cached   bool // the decode engine should hold the prompt already
	tokens   int  // of the prompt that the cell is believed to keep
	straight bool // the decode engine is asked because of that, and has not told what it found
	kept     bool // an engine has the prompt that keeps prefixes in the cell
}

// Placed takes in a choice.
func (b *Belief) Placed(c placement.Choice) { b.cached = c.PrefillWhy.Kind == placement.Cached }

// IsCached: the decode engine should hold the prompt.
func (b *Belief) IsCached() bool { return b.cached }

// Believe takes in what the engines of a choice are believed to be able to fetch, and returns it.
func (b *Belief) Believe(candidates []placement.Engine, c placement.Choice) int {
	b.tokens, b.straight = 0, c.PrefillWhy.Kind == placement.Stored
	for _, e := range candidates {
		if e.ID == c.Decode || e.ID == c.Prefill {
			b.tokens = max(b.tokens, e.Stored)
		}
	}
	return b.tokens
}

// Tokens is how many of the prompt the cell is believed to keep.
func (b *Belief) Tokens() int { return b.tokens }

// Straight tells, once, whether the decode engine was asked because of that.
func (b *Belief) Straight() bool {
	was := b.straight
	b.straight = false
	return was
}

// Keep takes in that an engine has the prompt; shares: it keeps prefixes in the cell.
func (b *Belief) Keep(shares bool) { b.kept = b.kept || shares }

// IsKept: the cell has the prompt.
func (b *Belief) IsKept() bool { return b.kept }

// StoredEnd is what came of a request that went straight to decode because its prefix was
// believed to be stored.
type StoredEnd uint8

// What its engine found of it.
const (
	StoredFound StoredEnd = iota
	StoredLess
	StoredUntold
)

// StoredEnds are their names.
var StoredEnds = []string{"found", "less", "untold"}

// spared takes in what an engine tells of how much of a prompt it was spared; brought: its cache
// was brought to it, so that this says nothing of what was there.
func (l *Life) spared(e Engine, report *openai.Report, usage *openai.Usage, brought bool) {
	s, told := request.SparedBy(report, usage)
	switch {
	case told && (brought || report == nil):
		l.effect(Paced{Engine: e.Key})
	case told:
		l.effect(Paced{e.Key, report, s})
	}
	if brought {
		return
	}
	if told && report != nil && report.KV == openai.KVFound && report.KVTokens > 0 {
		l.effect(FoundKept{e.Key, s, min(report.KVTokens, s.Of)})
	}
	believed := l.belief.Tokens()
	if believed == 0 || !e.Shares || l.Request.Whole {
		return
	}
	end := StoredUntold
	if told {
		l.Record.Stored.Spared, l.Record.Stored.Of = s.Tokens, s.Of
		if end = StoredFound; s.IsLess(l.Request, believed, e.Unit) {
			end = StoredLess
			l.effect(MissedKept{s, believed})
		}
	}
	if l.belief.Straight() {
		l.effect(StoredEnded{end})
	}
}

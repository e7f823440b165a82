package gateway

import (
	"time"

	"meridian/decide/placement"
	"meridian/see/ledger"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

// Ends of requests that went straight to decode because their prefix was believed to
// be stored, in the order of counters.stored.
var storedEnds = []string{"found", "less", "untold"}

const (
	storedFound = iota
	storedLess
	storedUntold
)

// looked takes in what an engine that had a prompt to compute found of it.
func (x *exchange) looked(e *roster.Engine, report *openai.Report, s roster.Spared, told bool) {
	now := time.Now()
	if told && report != nil {
		x.g.roster.Paced(e, report, s)
	}
	if told && report != nil && report.KV == openai.KVFound && report.KVTokens > 0 {
		x.g.roster.FoundKept(e, x.request.Prefix, s, min(report.KVTokens, s.Of), now)
	}
	if x.believed == 0 || !e.Shares() || x.request.Whole {
		return
	}
	end := storedUntold
	if told {
		x.rec.Stored.Spared, x.rec.Stored.Of = s.Tokens, s.Of
		if end = storedFound; s.IsLess(x.request, x.believed, e) {
			end = storedLess
			x.g.roster.MissedKept(x.request, s, x.believed, now)
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

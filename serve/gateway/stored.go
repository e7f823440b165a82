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
	believed := x.belief.Tokens()
	if believed == 0 || !e.Shares() || x.request.Whole {
		return
	}
	end := storedUntold
	if told {
		x.rec.Stored.Spared, x.rec.Stored.Of = s.Tokens, s.Of
		if end = storedFound; s.IsLess(x.request, believed, e) {
			end = storedLess
			x.g.roster.MissedKept(x.request, s, believed, now)
		}
	}
	if x.belief.Straight() {
		x.g.count.stored[end].Add(1)
	}
}

// believe records what the engines of a choice were believed to be able to fetch.
func (x *exchange) believe(candidates []placement.Engine, c placement.Choice) {
	x.rec.Stored = nil
	if believed := x.belief.Believe(candidates, c); believed > 0 {
		x.rec.Stored = &ledger.Stored{Tokens: min(believed, x.request.Tokens), Prompt: x.request.Tokens}
	}
}

package gateway

import (
	"time"

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
		x.g.roster.FoundKept(e, x.life.Request.Prefix, s, min(report.KVTokens, s.Of), now)
	}
	believed := x.life.Belief.Tokens()
	if believed == 0 || !e.Shares() || x.life.Request.Whole {
		return
	}
	end := storedUntold
	if told {
		x.life.Record.Stored.Spared, x.life.Record.Stored.Of = s.Tokens, s.Of
		if end = storedFound; s.IsLess(x.life.Request, believed, e) {
			end = storedLess
			x.g.roster.MissedKept(x.life.Request, s, believed, now)
		}
	}
	if x.life.Belief.Straight() {
		x.g.count.stored[end].Add(1)
	}
}

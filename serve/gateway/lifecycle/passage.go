package lifecycle

import (
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/openai"
)

// Passage is a move on its way.
type Passage struct {
	Why      MoveReason
	From, To string // keys of engines
	Record   ledger.Move
	Offered  bool       // the engine that was left has offered
	Queued   bool       // it did not in time: a request stands in its queue
	Last     kv.Instant // when the last token before came
	over     bool       // what came of it is recorded
}

// Land: the engine that the request moved to has sent its first token.
func (p *Passage) Land(now kv.Instant) {
	if p != nil && p.Record.To != "" && p.Record.GapMs == 0 {
		p.Record.GapMs = Milliseconds(max(1, now-p.Last)) // never nothing, which would mean that it has not
	}
}

// IsOver: what came of it is known, or there is none.
func (p *Passage) IsOver() bool { return p == nil || p.over }

// End takes in that the leg has ended which the request came to, and says what came of the move.
// It is false where the client does not wait for that.
func (p *Passage) End(report *openai.Report, abandoned bool) (end MoveEnd, ok bool) {
	p.over = true
	switch {
	case p.Record.GapMs == 0 && abandoned:
		return end, false
	case p.Record.GapMs == 0:
		return MoveLost, true
	case p.Record.To == p.Record.From:
		return MoveReturned, true
	case report != nil && report.KV == openai.KVLocal, report == nil && !p.Offered: // vLLM does not tell
		return MoveRecomputed, true
	}
	return MoveMoved, true
}

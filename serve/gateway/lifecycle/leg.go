package lifecycle

import (
	"cmp"

	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/openai"
)

// LegEnd is how a leg ended.
type LegEnd uint8

// How legs end.
const (
	LegDone LegEnd = iota
	LegLost
	LegBusy
	LegRefused
	LegCancelled
)

// LegEnds are their names.
var LegEnds = []string{"done", "lost", "busy", "refused", "cancelled"}

func endOf(t *Trouble) LegEnd {
	if t == nil {
		return LegDone
	}
	return [...]LegEnd{Lost: LegLost, Busy: LegBusy, Refused: LegRefused}[t.Kind]
}

// noteLeg puts a leg into the record. t is nil for one that went well.
func (l *Life) noteLeg(leg ledger.Leg, began, took kv.Instant, t *Trouble, c Client) {
	leg.StartMs, leg.Ms = l.clock.Since(began), Milliseconds(took)
	leg.Status = openai.StatusOK
	end := endOf(t)
	if t != nil {
		leg.Status, leg.Problem = t.Fault.Status, t.Fault.Recorded()
		if t.Withdrawn || c.Gone {
			end, leg.Status, leg.Problem = LegCancelled, 0, cmp.Or(c.Why, t.Fault.Recorded())
		}
	}
	l.Record.Legs = append(l.Record.Legs, leg)
	l.effect(LegEnded{leg.Kind, end})
}

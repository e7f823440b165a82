package lifecycle

import (
	"cmp"
	"net/http"
	"time"

	"meridian/see/ledger"
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

// EndLeg puts a leg into the record, and says how it ended. t is nil for one that went well; gone
// says that its request is over, and abandoned why, where that is known.
func (l *Life) EndLeg(leg ledger.Leg, began time.Time, took time.Duration, t *Trouble, gone bool, abandoned string) LegEnd {
	leg.StartMs, leg.Ms = l.Clock.Since(began), Milliseconds(took)
	leg.Status = http.StatusOK
	end := endOf(t)
	if t != nil {
		leg.Status, leg.Problem = t.Fault.Status, t.Fault.Recorded()
		if t.Withdrawn || gone {
			end, leg.Status, leg.Problem = LegCancelled, 0, cmp.Or(abandoned, t.Fault.Recorded())
		}
	}
	l.Record.Legs = append(l.Record.Legs, leg)
	return end
}

package doorserver

import (
	"fmt"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/door"
)

// checkLeg reads what a gateway made for a part of a request, and holds it against the transfer
// that the engine shows it for. A decode leg is good for as long as the ticket of its transfer is,
// which the prefill engine's home judges by its own clock; a prefill leg, before which there is no
// ticket, for one offer. Why the ticket is refused, if it is, is told here in its turn: after a leg
// that is missing or is none, and of a ticket that cannot be read before a leg of something else.
func (c *conn) checkLeg(sealed []byte, need trust.Leg, refused error) *door.Problem {
	s := c.server
	if len(sealed) == 0 && s.options.RequireLeg {
		return &door.Problem{
			Code: door.CodeLeg, Message: fmt.Sprintf("no leg came with the %v of a request, and this agent requires one", need.Kind),
			Hint: "send requests through the cell's gateway, or set door.require_leg = false",
		}
	}
	if len(sealed) == 0 {
		return problemOf(refused)
	}
	leg, err := trust.OpenLegFor(sealed, s.options.LegKey, need)
	isNone, unread := leg.ID == [16]byte{}, refused != nil && need.ID == [16]byte{}
	if err != nil && (isNone || !unread) {
		return problemOf(err)
	}
	if refused != nil {
		return problemOf(refused)
	}
	s.mu.Lock()
	spent := need.Kind == trust.LegPrefill && s.spent.has(legUse{need.Engine, need.ID}) && c.engine.offers[need.ID] == nil
	s.mu.Unlock()
	if spent {
		return problem(door.CodeLeg, "the leg of transfer %s was for one offer, which was made", kv.ID(need.ID))
	}
	if s.options.Asked != nil && (leg.Trace.Sampled || leg.Request != [16]byte{}) {
		s.options.Asked(leg) // of which request it is, and of which trace
	}
	return nil
}

// legUse is an offer that a leg was shown for.
type legUse struct {
	engine   string
	transfer kv.ID
}

// spentLegs remembers the last offers, so that the leg of one is not good for
// another. Its zero value remembers none yet.
type spentLegs struct {
	uses map[legUse]bool
	ring []legUse // in the order in which they came, the oldest at next
	next int
}

// maxSpentLegs bounds the memory. The holder refuses a second offer of a transfer by
// itself for as long as a ticket of the first may be used.
const maxSpentLegs = 1 << 16

func (s *spentLegs) has(use legUse) bool { return s.uses[use] }

func (s *spentLegs) add(use legUse) {
	switch {
	case s.uses[use]:
		return
	case s.uses == nil:
		s.uses = make(map[legUse]bool)
	}
	s.uses[use] = true
	if len(s.ring) < maxSpentLegs {
		s.ring = append(s.ring, use)
		return
	}
	delete(s.uses, s.ring[s.next])
	s.ring[s.next] = use
	s.next = (s.next + 1) % maxSpentLegs
}

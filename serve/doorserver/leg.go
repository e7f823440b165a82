package doorserver

import (
	"fmt"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/door"
)

// openLeg reads what a gateway made for a part of a request. It returns nil where
// there is none, and none is required.
func (s *Server) openLeg(sealed []byte, kind trust.LegKind) (*trust.Leg, *door.Problem) {
	if len(sealed) == 0 {
		if !s.options.RequireLeg {
			return nil, nil
		}
		return nil, &door.Problem{
			Code: door.CodeLeg, Message: fmt.Sprintf("no leg came with the %v of a request, and this agent requires one", kind),
			Hint: "send requests through the cell's gateway, or set door.require_leg = false",
		}
	}
	leg, err := trust.OpenLeg(sealed, s.options.LegKey)
	return &leg, problemOf(err)
}

// checkLeg compares a leg with the transfer that an engine shows it for. A decode leg
// is good for as long as the ticket of its transfer is, which the prefill engine's
// home judges by its own clock; a prefill leg, before which there is no ticket, for
// one offer.
func (s *Server) checkLeg(c *conn, leg *trust.Leg, need trust.Leg) *door.Problem {
	if leg == nil {
		return nil
	}
	if err := leg.Check(need); err != nil {
		return problemOf(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	use := legUse{need.Engine, need.ID}
	if need.Kind == trust.LegPrefill && s.spent.has(use) && c.engine.offers[use.transfer] == nil {
		return problem(door.CodeLeg, "the leg of transfer %s was for one offer, which was made", use.transfer)
	}
	return nil
}

// noteLeg tells what a leg asks for: of which request it is, and of which trace.
func (s *Server) noteLeg(leg *trust.Leg) {
	if leg != nil && s.options.Asked != nil && (leg.Trace.Sampled || leg.Request != [16]byte{}) {
		s.options.Asked(*leg)
	}
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

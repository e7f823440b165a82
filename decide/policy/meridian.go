package policy

import "meridian/kv"

// Meridian is our own policy. What a user feels is the time until the answer
// begins, and then whether it flows. So:
//
//   - answers go first, and are victims only when there is no other: they stream
//     faster than people read, end soon and free their blocks;
//   - those who think, and prompts, come in as they came, and who has to give its
//     blocks up is copied out rather than computed anew where that is cheaper;
//   - prompts are cut so that they cost those who think nothing. A step of few
//     tokens waits for the weights; until it computes FreeTokens more, it takes no
//     longer. A prompt in such pieces is slower by itself, and all others are
//     faster: over an hour at full load that is worth more than any order. Where
//     most of those who decode are read, steps may take as long as StepBudget,
//     which is still faster than people read, and prompts are through sooner;
//   - one that does not fit lets smaller ones come in before it for a while, so
//     that memory does not lie idle;
//   - of those who wait, tenants that have been served FairTokens more than the
//     least served come after the others.
//
// No request starves: who came longer ago than MaxAge goes before all, in the order
// in which they came, and so does who came back, until it has found the tokens
// it is owed. So one that is as old waits at most for those before it.
type Meridian struct {
	ranking
	maxAge, stepBudget Instant
	fairTokens         int64
	classify           func(*Request) uint8
	horizon            horizon
	// least is what the least served of the tenants that wait was served.
	least int64
}

// Classes of Meridian.
const (
	meridianOverdue = iota
	meridianAnswers
	meridianThoughts
	meridianServed // they wait, and their tenant was served more than others
)

func newMeridian(o Options) *Meridian {
	p := &Meridian{maxAge: o.MaxAge, stepBudget: o.StepBudget, fairTokens: o.FairTokens}
	p.guests, p.backfill = meridianThoughts, o.Backfill
	p.reasons[meridianOverdue], p.reasons[meridianAnswers] = Answering, Answering
	p.reasons[meridianThoughts], p.reasons[meridianServed] = Thinking, Thinking
	p.classify = p.classOf
	return p
}

// Name is "meridian".
func (p *Meridian) Name() string { return "meridian" }

// Decide implements Policy.
func (p *Meridian) Decide(s *Snapshot, d *Decision) {
	p.horizon = horizon{now: s.Now}
	p.findLeast(s)
	p.rank(s, d, p.classify)
	p.keepTo(p.stepBudget)
	p.cut()
	p.serve()
	p.horizon.limit(&p.ranking)
}

// findLeast looks for the least served tenant of those that wait.
func (p *Meridian) findLeast(s *Snapshot) {
	found := false
	for i := range s.Requests {
		if r := &s.Requests[i]; r.State == Waiting {
			if served := s.Tenants[r.Tenant].Served; !found || served < p.least {
				p.least, found = served, true
			}
		}
	}
}

func (p *Meridian) classOf(r *Request) uint8 {
	h := &p.horizon
	if h.now-r.Arrived >= p.maxAge {
		return meridianOverdue
	}
	h.at(r.Arrived + p.maxAge)
	if owed := r.owed(); owed > 0 && r.Holds() {
		h.in(owed)
		return meridianOverdue
	}
	switch {
	case r.Phase == kv.Output:
		return meridianAnswers
	case r.State == Waiting:
		if left := r.Arrived + p.backfill; left > h.now {
			h.at(left) // then others may not come in before it any more
		}
		return p.fair(r)
	}
	return meridianThoughts
}

// fair is the class of one that waits.
func (p *Meridian) fair(r *Request) uint8 {
	lead := p.s.Tenants[r.Tenant].Served - p.least
	// Both counters grow by two for every sequence of a step, at most.
	pace := 2 * int64(p.s.Limits.Sequences)
	p.horizon.in(int32(min(max(lead-p.fairTokens, p.fairTokens-lead)/pace, forever)))
	if lead > p.fairTokens {
		return meridianServed
	}
	return meridianThoughts
}

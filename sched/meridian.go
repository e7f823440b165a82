package sched

import "meridian/kv"

// Meridian is our own policy. What a user feels is the time until the answer
// begins, and then whether it flows; memory is what is short. So:
//
//   - answers go first and are not victims while anybody else is: they stream
//     faster than people read, end soon and free their blocks;
//   - those who think, and prompts, come in as they came;
//   - a thought of more than LongAfter tokens gives its blocks up for any of
//     these, by a copy where that is cheaper, and comes back when memory is idle.
//     One in a hundred is so long, and these few hold a third of all memory over
//     time, because a thought holds the more the longer it holds it;
//   - of those who wait, tenants that have been served FairTokens more than the
//     least served come after the others.
//
// Nobody starves: who came longer ago than Patience goes before all, in the
// order in which they came, and so does who came back, until it has found the
// tokens it is owed. So one that is as old waits at most for those before it.
type Meridian struct {
	ranking
	longAfter  int32
	patience   Instant
	fairTokens int64
	classify   func(*Request) uint8
	horizon    horizon
	// least is what the least served of the tenants that wait was served.
	least int64
}

// Classes of Meridian.
const (
	meridianOverdue = iota
	meridianAnswers
	meridianThoughts
	meridianServed // they wait, and their tenant was served more than others
	meridianLong
)

func newMeridian(o Options) *Meridian {
	p := &Meridian{longAfter: o.LongAfter, patience: o.LongPatience, fairTokens: o.FairTokens}
	p.guests = meridianLong
	p.reasons[meridianOverdue], p.reasons[meridianAnswers] = Answering, Answering
	p.reasons[meridianThoughts], p.reasons[meridianServed], p.reasons[meridianLong] = Thinking, Thinking, Demoted
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
	p.serveBelow(meridianLong)
	// Who comes back only because memory is idle leaves some of it idle, or the
	// next newcomer would send it away again.
	if len(d.Run) > 0 {
		p.reserve = s.Limits.Blocks / 16
	}
	p.serve()
	p.reserve = 0
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
	owed := r.owed()
	switch age := h.now - r.Arrived; {
	case age >= p.patience:
		return meridianOverdue
	case owed > 0 && r.Holds():
		h.in(owed)
		return meridianOverdue
	default:
		h.at(r.Arrived + p.patience)
	}
	switch {
	case r.Phase == kv.Output:
		return meridianAnswers
	case r.Think >= p.longAfter:
		return meridianLong
	case r.State == Waiting:
		return p.fair(r)
	}
	if r.Phase == kv.Think {
		h.in(p.longAfter - r.Think)
	}
	return meridianThoughts
}

// fair is the class of one that waits.
func (p *Meridian) fair(r *Request) uint8 {
	lead := p.s.Tenants[r.Tenant].Served - p.least
	// Both counters grow by two for every token of a step, at most.
	pace := 2 * int64(p.s.Limits.Sequences)
	p.horizon.in(int32(min(max(lead-p.fairTokens, p.fairTokens-lead)/pace, forever)))
	if lead > p.fairTokens {
		return meridianServed
	}
	return meridianThoughts
}

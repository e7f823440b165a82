package sched

import "meridian/kv"

// Pascal is the scheduler of PASCAL (arXiv:2602.11530), as far as it is
// published: those who reason go first, and take blocks from answers to come
// in; a thought of more than DemoteAfter tokens is demoted to the answers;
// these take turns of Quantum tokens. A pacer gives an answer's tokens out at
// reading speed, so one whose reader has tokens left can be left out without
// being noticed: those whose reader has less than a second left go first.
//
// Ours is the bound: who has not been served for Patience goes before all, and
// so does who came back, until it has found the tokens it is owed. So nobody
// waits longer than that and than those who are overdue already take.
type Pascal struct {
	ranking
	quantum, demoteAfter int32
	pace, patience       Instant
	classify             func(*Request) uint8
	horizon              horizon
}

// Classes of Pascal.
const (
	pascalOverdue = iota
	pascalReasoning
	pascalDry
	pascalTurns // and more: one for each turn that was taken
)

// dry is when a reader has too little left.
const dry = Second

func newPascal(o Options) *Pascal {
	p := &Pascal{quantum: o.Quantum, demoteAfter: o.DemoteAfter, pace: o.Pace, patience: o.Patience}
	p.guests = pascalDry
	for c := range p.reasons {
		p.reasons[c] = Quantum
	}
	p.reasons[pascalOverdue], p.reasons[pascalReasoning], p.reasons[pascalDry] = Answering, Thinking, Answering
	p.classify = p.classOf
	return p
}

// Name is "pascal".
func (p *Pascal) Name() string { return "pascal" }

// Decide implements Policy.
func (p *Pascal) Decide(s *Snapshot, d *Decision) {
	p.horizon = horizon{now: s.Now}
	p.rank(s, d, p.classify)
	p.serve()
	p.horizon.limit(&p.ranking)
}

func (p *Pascal) classOf(r *Request) uint8 {
	h := &p.horizon
	if owed := r.owed(); owed > 0 && r.Holds() {
		h.in(owed)
		return pascalOverdue
	}
	if r.State != Running && h.since(r) >= p.patience {
		return pascalOverdue
	}
	if r.State != Running {
		h.at(h.now + p.patience - h.since(r))
	}
	turns := int32(0)
	switch {
	case r.Phase == kv.Output:
		if ahead := r.ahead(h.now, p.pace); ahead < dry {
			h.in(int32((dry-ahead)/p.pace) + 1)
			return pascalDry
		} else {
			h.at(h.now + ahead - dry + 1)
		}
		turns = r.Output / p.quantum
		h.in(p.quantum - r.Output%p.quantum)
	case r.Think < p.demoteAfter:
		h.in(p.demoteAfter - r.Think)
		return pascalReasoning
	default:
		turns = (r.Think - p.demoteAfter) / p.quantum
		h.in(p.quantum - (r.Think-p.demoteAfter)%p.quantum)
	}
	return uint8(min(pascalTurns+turns, rest-1))
}

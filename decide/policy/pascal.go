package policy

import (
	"cmp"
	"slices"

	"meridian/kv"
)

// Pascal is the scheduler of PASCAL (arXiv:2602.11530), as far as it is
// published: those who reason go first, as they came, and take blocks from
// answers to come in; a thought of more than DemoteAfter tokens is demoted to the
// answers; these go round, with turns of Quantum tokens: a request that has had one goes
// behind all others, and the next is who has been left out longest. A pacer gives
// an answer's tokens out at reading speed, so that one whose reader has tokens
// left can be left out without being noticed.
//
// What differs from the paper:
//
//   - no request moves to another engine when its thought ends. The paper's engines
//     hand answers to one another then, and by its account answers wait for up to
//     27 s without that; one engine has nowhere to send them;
//   - the paper's pacer is not published in detail: here answers whose reader has
//     less than a second left go before those that go round;
//   - PreemptMaxFraction bounds who loses blocks in one step, and no request loses
//     them again before it has found the tokens it is owed, as with all our
//     policies;
//   - victims are copied out where that is cheaper than to compute them anew;
//   - who has not been served for Patience goes before all, and so does who came
//     back, until it has found the tokens it is owed. So no request waits longer than
//     that and than those who are overdue already take.
type Pascal struct {
	ranking
	quantum, demoteAfter int32
	pace, patience       Instant
	chunkFree            bool
	classify             func(*Request) uint8
	horizon              horizon
}

// Classes of Pascal.
const (
	pascalOverdue = iota
	pascalReasoning
	pascalDry
	pascalRound // who takes turns
)

// dry is when a reader has too little left.
const dry = Second

func newPascal(o Options) *Pascal {
	p := &Pascal{quantum: o.Quantum, demoteAfter: o.DemoteAfter, pace: o.Pace, patience: o.Patience, chunkFree: o.ChunkFree}
	p.guests, p.backwards = pascalDry, true
	p.reasons[pascalOverdue], p.reasons[pascalReasoning] = Answering, Thinking
	p.reasons[pascalDry], p.reasons[pascalRound] = Answering, Quantum
	p.classify = p.classOf
	return p
}

// Name is "pascal".
func (p *Pascal) Name() string { return "pascal" }

// Decide implements Policy.
func (p *Pascal) Decide(s *Snapshot, d *Decision) {
	p.horizon = horizon{now: s.Now}
	p.rank(s, d, p.classify)
	p.goRound()
	if p.chunkFree {
		p.cut()
	}
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
	switch {
	case r.Phase == kv.Output:
		ahead := r.ahead(h.now, p.pace)
		if ahead < dry {
			h.in(int32((dry-ahead)/p.pace) + 1)
			return pascalDry
		}
		h.at(h.now + ahead - dry + 1)
	case r.Think < p.demoteAfter:
		h.in(p.demoteAfter - r.Think)
		return pascalReasoning
	}
	if turn := p.turn(r); turn > 0 {
		h.in(p.quantum - turn)
	} else {
		h.in(1) // it begins another turn, or goes behind the others
	}
	return pascalRound
}

// found is how many tokens r has found in its turns.
func (p *Pascal) found(r *Request) int32 {
	if r.Phase == kv.Output {
		return r.Output
	}
	return r.Think - p.demoteAfter
}

// turn is how many tokens of its turn r has found; 0 means that its last one is
// over.
func (p *Pascal) turn(r *Request) int32 { return p.found(r) % p.quantum }

// goRound puts those who take turns in order: who has begun its turn goes on,
// then who was left out longest, and who has just ended its turn is the last. Of
// those whose turns ended together, who has had less goes first.
func (p *Pascal) goRound() {
	round := p.order[p.begins(pascalRound):p.begins(pascalRound+1)]
	slices.SortFunc(round, func(a, b int32) int {
		x, y := &p.s.Requests[a], &p.s.Requests[b]
		if goesOn := x.State == Running && p.turn(x) > 0; goesOn != (y.State == Running && p.turn(y) > 0) {
			if goesOn {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(x.LastServed, y.LastServed), cmp.Compare(p.found(x), p.found(y)), cmp.Compare(a, b))
	})
}

// begins is the place of the first of a class.
func (p *Pascal) begins(class uint8) int {
	at, _ := slices.BinarySearchFunc(p.order, class, func(i int32, class uint8) int { return cmp.Compare(p.class[i], class) })
	return at
}

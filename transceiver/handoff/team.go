package handoff

import (
	"fmt"
	"slices"

	"meridian/internal/mutant"
	"meridian/kv"
	"meridian/reshard"
)

// team is the hands of one engine during one session, as their home sees them.
// What the home wants of them is the same for all; each is asked until it has
// it.
type team struct {
	pace     Pace
	self     Member
	session  uint64
	transfer kv.ID
	as       Role
	engine   string
	terms    *Terms
	digest   kv.Hash
	deadline Instant
	ties     []*tie
	number   uint64
	kind     OrderKind // of the last order; 0 before the first
	// problem is the first thing that went wrong, which fails all.
	problem Problem
}

// tie is one hand.
type tie struct {
	member Member
	flows  []FlowReport
	order  *Order
	phase  Phase   // reached, of that order
	asked  Instant // when the order was given
	heard  Instant
	serial uint64  // of the last report
	next   Instant // when to ask again
	pause  Instant
	gone   bool
	stuck  bool // it was said that it cannot be reached
}

// party is the one whose hands these are.
func (t *team) party() *Party {
	if t.as == Source {
		return &t.terms.Src
	}
	return &t.terms.Dst
}

// muster makes a tie for every agent that has a rank with a flow.
func (t *team) muster(openings []Opening) {
	ranks := t.party().Engine.Ranks
	for _, o := range openings {
		rank := o.Src
		if t.as == Destination {
			rank = o.Dst
		}
		member := ranks[rank].Agent
		i, found := slices.BinarySearchFunc(t.ties, member, func(x *tie, m Member) int { return x.member.Compare(m) })
		if !found {
			t.ties = slices.Insert(t.ties, i, &tie{member: member})
		}
		t.ties[i].flows = append(t.ties[i].flows, FlowReport{Opening: o})
	}
}

// command gives all hands an order.
func (t *team) command(now Instant, kind OrderKind, layers int, how Problem) []Effect {
	t.number++
	t.kind = kind
	var effects []Effect
	for _, x := range t.ties {
		o := &Order{
			Session: t.session, Number: t.number, Kind: kind, As: t.as, Engine: t.engine,
			Layers: layers, RemainingMs: now.until(t.deadline), Problem: how,
		}
		if kind < CloseUp {
			o.Terms, o.Digest = t.terms, t.digest
			for i := range x.flows {
				o.Flows = append(o.Flows, x.flows[i].Opening)
			}
		}
		if x.member != t.self {
			o.LeaseMs = uint64(t.pace.HandLease / Millisecond)
		}
		x.order, x.phase, x.asked, x.pause = o, 0, now, t.pace.FirstRetry
		if t.number == 1 {
			x.heard = now
		}
		effects = append(effects, t.ask(now, x)...)
	}
	return effects
}

// ask sends a hand its order, and plans to do so again. The hand of the home's
// own agent needs to be told only once.
func (t *team) ask(now Instant, x *tie) []Effect {
	if x.gone {
		x.next = Never
		return nil
	}
	x.next = Never
	if x.member != t.self {
		x.next = now + x.pause
		x.pause = min(2*x.pause, t.pace.LastRetry)
	}
	return []Effect{Send{x.member, t.transfer, x.order}}
}

// content reports whether a hand has done what it was last told.
func (t *team) content(x *tie) bool {
	switch t.kind {
	case OpenUp:
		return x.phase == Open
	case MoveOn:
		return x.phase == Moved
	case CloseUp, PassOn:
		return x.phase == Closed || x.gone
	}
	return true
}

// done reports whether all hands have.
func (t *team) done() bool {
	return !slices.ContainsFunc(t.ties, func(x *tie) bool { return !t.content(x) })
}

// hear takes a report; false means that it is none of this team's.
func (t *team) hear(now Instant, from Member, r *Report) bool {
	i := slices.IndexFunc(t.ties, func(x *tie) bool { return x.member == from })
	if i < 0 || r.As != t.as || r.Session != t.session {
		return false
	}
	x := t.ties[i]
	x.heard = now
	if r.Serial < x.serial && r.Phase != Closed {
		return true // it is known better
	}
	x.serial = r.Serial
	if t.kind < CloseUp {
		t.learn(x, r)
	}
	switch {
	case r.Phase == Closed:
		// A hand that is closed stays so, whichever order it answers; but only
		// the answer to PassOn says that it was passed on.
		if t.kind != PassOn || r.Number == x.order.Number {
			x.phase = Closed
		}
	case r.Number == x.order.Number:
		x.phase = max(x.phase, r.Phase)
	}
	if t.kind < CloseUp && r.Phase >= Closing && t.problem.None() {
		if t.problem = r.Problem; t.problem.None() {
			t.problem = Trouble(fmt.Errorf("%w: the hand of %v gave up", ErrLapsed, from))
		}
	}
	if t.content(x) && x.next != Never {
		x.next, x.pause = now+t.pace.HandLease/3, t.pace.FirstRetry
	}
	return true
}

// learn takes what a report says of flows. A flow that has failed cannot have
// arrived, nor the other way round.
func (t *team) learn(x *tie, r *Report) {
	all := t.terms.layers()
	for i := range r.Flows {
		news := &r.Flows[i]
		at := slices.IndexFunc(x.flows, func(f FlowReport) bool { return f.Flow == news.Flow })
		if at < 0 {
			continue
		}
		known := &x.flows[at]
		failed, arrived := !known.Problem.None(), known.Layers == all
		switch {
		case failed && news.Problem.None() && news.Layers == all, arrived && !news.Problem.None(),
			known.Grant != (kv.ID{}) && news.Grant != (kv.ID{}) && known.Grant != news.Grant:
			t.problem = Trouble(fmt.Errorf("%w: %v says of %v what it denied before", ErrContradiction, x.member, known.Flow))
		default:
			*known = *news
			if t.problem.None() {
				t.problem = news.Problem
			}
		}
	}
}

// lost takes the news that an agent is gone.
func (t *team) lost(m Member) {
	for _, x := range t.ties {
		if x.member == m && !x.gone {
			x.gone, x.next = true, Never
			if t.kind < CloseUp && t.problem.None() {
				t.problem = Trouble(fmt.Errorf("%w: %v", ErrGone, m))
			}
		}
	}
}

// tick asks again, and notices who is silent.
func (t *team) tick(now Instant) (effects []Effect, stuck []Member) {
	for _, x := range t.ties {
		if now >= x.next {
			effects = append(effects, t.ask(now, x)...)
		}
		if x.member == t.self || x.gone {
			continue
		}
		switch {
		case t.kind < CloseUp && now >= x.heard+t.pace.HandLease && t.problem.None():
			t.problem = Trouble(fmt.Errorf("%w of %v", ErrLapsed, x.member))
		case t.kind == CloseUp && !t.content(x) && !x.stuck && now >= x.asked+t.pace.HandLease:
			x.stuck = true
			stuck = append(stuck, x.member)
		}
	}
	return effects, stuck
}

// wake is when tick is wanted.
func (t *team) wake() Instant {
	next := Never
	for _, x := range t.ties {
		next = min(next, x.next)
		if x.member == t.self || x.gone {
			continue
		}
		switch {
		case t.kind < CloseUp && t.problem.None():
			next = min(next, x.heard+t.pace.HandLease)
		case t.kind == CloseUp && !t.content(x) && !x.stuck:
			next = min(next, x.asked+t.pace.HandLease)
		}
	}
	return next
}

// flows is what all hands have told, by source, then destination.
func (t *team) flows() []FlowReport {
	var all []FlowReport
	for _, x := range t.ties {
		all = append(all, x.flows...)
	}
	slices.SortFunc(all, func(a, b FlowReport) int { return a.Compare(b.Flow) })
	return all
}

func (t *team) openings() []Opening {
	flows := t.flows()
	all := make([]Opening, len(flows))
	for i := range flows {
		all[i] = flows[i].Opening
	}
	return all
}

// arrived reports whether every flow of a plan has, in full. It is the
// intersection of what all ranks say.
func arrived(plan *reshard.Plan, flows []FlowReport, layers int) (bool, error) {
	if len(flows) != len(plan.Flows()) {
		return false, fmt.Errorf("%w: %d flows are told of, the plan has %d", ErrTerms, len(flows), len(plan.Flows()))
	}
	all := true
	for i, f := range plan.Flows() {
		told := &flows[i]
		switch {
		case told.Flow != (Flow{f.Src, f.Dst}):
			return false, fmt.Errorf("%w: %v is told of, and is not in the plan", ErrTerms, told.Flow)
		case told.Layers < layers:
			all = false
		case told.Bytes != uint64(f.Bytes()) && !mutant.Is(mutant.FailureForgotten):
			return false, fmt.Errorf("%w: %v moved %d bytes, the plan has %d", ErrMove, told.Flow, told.Bytes, f.Bytes())
		}
	}
	return all, nil
}

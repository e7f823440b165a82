package handoff

import (
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
)

// followerGroup is the followers of one engine during one session, as their home sees them.
// What the home wants of them is the same for all; each is asked until it has
// it.
type followerGroup struct {
	timing   Timing
	self     kv.Member
	session  uint64
	transfer kv.ID
	as       Role
	engine   string
	terms    *Terms
	digest   kv.Hash
	deadline Instant
	members  []*followerState
	number   uint64
	kind     OrderKind // of the last order; 0 before the first
	// problem is the first thing that went wrong, which fails all.
	problem Problem
}

// followerState is one follower.
type followerState struct {
	member kv.Member
	able   bool // it has CanTokens
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

// party is the one whose followers these are.
func (g *followerGroup) party() *Party {
	if g.as == Source {
		return &g.terms.Src
	}
	return &g.terms.Dst
}

// assign gives every agent that has a rank with a flow its flows.
func (g *followerGroup) assign(flowGrants []FlowGrant) {
	ranks := g.party().Engine.Ranks
	for _, o := range flowGrants {
		rank := o.Src
		if g.as == Destination {
			rank = o.Dst
		}
		member := ranks[rank].Agent
		i, found := slices.BinarySearchFunc(g.members, member, func(x *followerState, m kv.Member) int { return x.member.Compare(m) })
		if !found {
			able := member == g.self || ranks[rank].Capabilities&CanTokens != 0
			g.members = slices.Insert(g.members, i, &followerState{member: member, able: able})
		}
		g.members[i].flows = append(g.members[i].flows, FlowReport{FlowGrant: o})
	}
}

// orderAll gives all followers an order. A build that knows of layers alone is told
// what of computed it can take.
func (g *followerGroup) orderAll(now Instant, kind OrderKind, computed Computed, how Problem) []Effect {
	g.number++
	g.kind = kind
	var effects []Effect
	for _, x := range g.members {
		o := &Order{
			Session: g.session, Number: g.number, Kind: kind, As: g.as, Engine: g.engine,
			Computed: computed, RemainingMs: until(now, g.deadline), Problem: how,
		}
		if kind < OrderStop {
			o.Terms, o.Digest = g.terms, g.digest
			for i := range x.flows {
				o.Flows = append(o.Flows, x.flows[i].FlowGrant)
			}
		}
		if !x.able {
			o.Computed = computed.plain()
		}
		if x.member != g.self {
			o.LeaseMs = uint64(g.timing.FollowerLease / Millisecond)
		}
		x.order, x.phase, x.asked, x.pause = o, 0, now, g.timing.FirstRetry
		if g.number == 1 {
			x.heard = now
		}
		effects = append(effects, g.sendOrder(now, x)...)
	}
	return effects
}

// sendOrder sends a follower its order, and plans to do so again. The follower of the home's
// own agent needs to be told only once.
func (g *followerGroup) sendOrder(now Instant, x *followerState) []Effect {
	if x.gone {
		x.next = Never
		return nil
	}
	x.next = Never
	if x.member != g.self {
		x.next = now + x.pause
		x.pause = min(2*x.pause, g.timing.LastRetry)
	}
	return []Effect{Send{x.member, g.transfer, x.order}}
}

// satisfied reports whether a follower has done what it was last told.
func (g *followerGroup) satisfied(x *followerState) bool {
	switch g.kind {
	case OrderGrant:
		return x.phase == Granted
	case OrderMove:
		return x.phase == Moved
	case OrderStop, OrderNotifyRanks:
		return x.phase == Stopped || x.gone
	}
	return true
}

// done reports whether all followers have.
func (g *followerGroup) done() bool {
	return !slices.ContainsFunc(g.members, func(x *followerState) bool { return !g.satisfied(x) })
}

// onReport takes a report; false means that it is of another session.
func (g *followerGroup) onReport(now Instant, from kv.Member, r *Report) bool {
	i := slices.IndexFunc(g.members, func(x *followerState) bool { return x.member == from })
	if i < 0 || r.As != g.as || r.Session != g.session {
		return false
	}
	x := g.members[i]
	x.heard = now
	if r.Serial < x.serial && r.Phase != Stopped {
		return true // it is known better
	}
	x.serial = r.Serial
	if g.kind < OrderStop {
		g.mergeFlows(x, r)
	}
	switch {
	case r.Phase == Stopped:
		// A follower that is closed stays so, whichever order it answers; but only
		// the answer to OrderNotifyRanks says that the ranks were told.
		if g.kind != OrderNotifyRanks || r.Number == x.order.Number {
			x.phase = Stopped
		}
	case r.Number == x.order.Number:
		x.phase = max(x.phase, r.Phase)
	}
	if g.kind < OrderStop && r.Phase >= Stopping && g.problem.None() {
		if g.problem = r.Problem; g.problem.None() {
			g.problem = ProblemOf(fmt.Errorf("%w: the follower of %v gave up", ErrLapsed, from))
		}
	}
	if g.satisfied(x) && x.next != Never {
		x.next, x.pause = now+g.timing.FollowerLease/3, g.timing.FirstRetry
	}
	return true
}

// mergeFlows takes what a report says of flows. A flow that has failed cannot have
// arrived, nor the other way round.
func (g *followerGroup) mergeFlows(x *followerState, r *Report) {
	all := g.terms.layers()
	for i := range r.Flows {
		news := &r.Flows[i]
		at, found := slices.BinarySearchFunc(x.flows, news.Flow, func(known FlowReport, f Flow) int { return known.Compare(f) })
		if !found {
			continue
		}
		known := &x.flows[at]
		failed, arrived := !known.Problem.None(), known.Layers == all
		switch {
		case failed && news.Problem.None() && news.Layers == all, arrived && !news.Problem.None(),
			known.Grant != (kv.ID{}) && news.Grant != (kv.ID{}) && known.Grant != news.Grant:
			g.problem = ProblemOf(fmt.Errorf("%w: %v says of %v what it denied before", ErrContradiction, x.member, known.Flow))
		default:
			*known = *news
			if g.problem.None() {
				g.problem = news.Problem
			}
		}
	}
}

// onGone takes the news that an agent is gone.
func (g *followerGroup) onGone(m kv.Member) {
	for _, x := range g.members {
		if x.member == m && !x.gone {
			x.gone, x.next = true, Never
			if g.kind < OrderStop && g.problem.None() {
				g.problem = ProblemOf(fmt.Errorf("%w: %v", ErrGone, m))
			}
		}
	}
}

// tick asks again, and notices who is silent.
func (g *followerGroup) tick(now Instant) (effects []Effect, stuck []kv.Member) {
	for _, x := range g.members {
		if now >= x.next {
			effects = append(effects, g.sendOrder(now, x)...)
		}
		if x.member == g.self || x.gone {
			continue
		}
		switch {
		case g.kind < OrderStop && now >= x.heard+g.timing.FollowerLease && g.problem.None():
			g.problem = ProblemOf(fmt.Errorf("%w of %v", ErrLapsed, x.member))
		case g.kind == OrderStop && !g.satisfied(x) && !x.stuck && now >= x.asked+g.timing.FollowerLease:
			x.stuck = true
			stuck = append(stuck, x.member)
		}
	}
	return effects, stuck
}

// wake is when tick is wanted.
func (g *followerGroup) wake() Instant {
	next := Never
	for _, x := range g.members {
		next = min(next, x.next)
		if x.member == g.self || x.gone {
			continue
		}
		switch {
		case g.kind < OrderStop && g.problem.None():
			next = min(next, x.heard+g.timing.FollowerLease)
		case g.kind == OrderStop && !g.satisfied(x) && !x.stuck:
			next = min(next, x.asked+g.timing.FollowerLease)
		}
	}
	return next
}

// flows is what all followers have told, by source, then destination.
func (g *followerGroup) flows() []FlowReport {
	var all []FlowReport
	for _, x := range g.members {
		all = append(all, x.flows...)
	}
	slices.SortFunc(all, func(a, b FlowReport) int { return a.Compare(b.Flow) })
	return all
}

func (g *followerGroup) grants() []FlowGrant {
	flows := g.flows()
	all := make([]FlowGrant, len(flows))
	for i := range flows {
		all[i] = flows[i].FlowGrant
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
		case told.Bytes != uint64(f.Bytes()):
			return false, fmt.Errorf("%w: %v moved %d bytes, the plan has %d", ErrMove, told.Flow, told.Bytes, f.Bytes())
		}
	}
	return all, nil
}

package handoff

import (
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
)

// session is what a destination and the source of an offer have agreed on so far.
type session struct {
	asking
	askBytes       int    // about what the ask takes, while it is awaited
	number         uint64 // the session of the source's own followers
	lease          Instant
	deadline       Instant
	terms          *Terms
	digest         kv.Hash
	flows          []FlowGrant
	followers      *followerGroup
	answered       bool
	told           Computed // to the destination, the last time
	push           *Push
	arrived        bool     // everything that was to be pushed
	destinationEnd *Problem // by the destination, as its last word
}

// beginSession begins a session.
func (o *offer) beginSession(now Instant, a asking, deadline Instant) []Effect {
	h := o.source
	h.session++
	o.session = &session{asking: a, number: h.session, lease: now + h.Timing.Lease, deadline: deadline}
	o.record.Peer, o.record.PeerEngine, o.record.Push = a.from.Name, a.ask.Dst.Engine.ID, a.ask.Push
	o.record.DstRanks, o.record.Stages.Met = len(a.ask.Dst.Engine.Ranks), now
	t, err := OpenTicket(a.ask.Ticket, h.Key)
	if err == nil {
		err = t.Fingerprint.Check(o.Fingerprint)
	}
	if err == nil {
		err = o.checkAsk(a.ask)
	}
	if err == nil {
		err = fits(&o.src.Engine, &a.ask.Dst.Engine, &a.ask.Dst.Engine)
	}
	if err != nil {
		return o.refuseSession(err)
	}
	o.state = offerPlanning
	o.session.terms = &Terms{Transfer: o.Transfer, Src: o.src, Dst: a.ask.Dst, Tokens: a.ask.Tokens, ContextTokens: o.Tokens}
	return []Effect{MakePlan{Source, o.session.number, o.session.terms}}
}

// checkAsk says why an ask that is of the offer's content cannot be answered.
func (o *offer) checkAsk(a *Ask) error {
	switch {
	case o.src.Engine.IsStore() && a.Capabilities&CanPlaces == 0:
		return fmt.Errorf("%w: %s is an object cache, and the agent that asks is of a build that knows none", ErrUnable, o.Engine)
	case a.Tokens.Start < o.First:
		return fmt.Errorf("%w: tokens %v are asked for, those before token %d are not held here", ErrTerms, a.Tokens, o.First)
	}
	return nil
}

// refuseSession ends a session before anything was opened to its destination.
func (o *offer) refuseSession(err error) []Effect {
	refused := o.source.refuse(o.session.asking, o.Transfer, err)
	o.past[o.session.from] = pastSession{o.session.ask.Session, ProblemOf(err)}
	o.session, o.state = nil, offerHeld
	return refused
}

// planned goes on with a plan: the followers open what it names, or, when they are
// to write, wait for what the destination opens.
func (o *offer) planned(now Instant, plan *reshard.Plan, err error) []Effect {
	var flows []FlowGrant
	if err == nil {
		flows, err = flowsOf(plan)
	}
	if err != nil {
		return o.refuseSession(err)
	}
	s := o.session
	s.flows = flows
	s.terms.plan, s.digest = plan, plan.Digest()
	o.record.Bytes, o.record.Stages.Planned = uint64(plan.Bytes()), now
	s.followers = &followerGroup{
		timing: o.source.Timing, self: o.source.Self, session: s.number, transfer: o.Transfer, as: Source, engine: o.Engine,
		terms: s.terms, digest: s.digest, deadline: s.deadline,
	}
	if s.ask.Push {
		o.state = offerOpen
		return o.answer(now)
	}
	s.followers.assign(s.flows)
	o.state = offerGranting
	return append(s.followers.orderAll(now, OrderGrant, Computed{}, Problem{}), o.review(now)...)
}

// answer tells the destination all it needs, once it can make use of it.
func (o *offer) answer(now Instant) []Effect {
	s := o.session
	if !o.complete() && s.ask.Capabilities&CanLayers == 0 {
		return nil
	}
	s.told = o.tellable()
	if !s.answered {
		s.answered = true
		o.record.Stages.Moving = now
	}
	a := &Answer{
		Session: s.ask.Session, Version: min(HighVersion, s.ask.High), Src: o.src, ContextTokens: o.Tokens, Digest: s.digest,
		Computed: s.told, LeaseMs: uint64(o.source.Timing.Lease / Millisecond),
	}
	if !s.ask.Push {
		a.Grants = s.followers.grants()
	}
	return []Effect{Send{s.from, o.Transfer, a}}
}

// complete reports whether all is computed.
func (o *offer) complete() bool { return o.Computed.Layers == o.layers }

// tellable is what of the offer that is computed its destination can take.
func (o *offer) tellable() Computed {
	if o.session.ask.Capabilities&CanTokens == 0 {
		return o.Computed.plain()
	}
	return o.Computed
}

// tellComputed: more is computed.
func (o *offer) tellComputed(now Instant) []Effect {
	s := o.session
	switch {
	case o.state != offerOpen:
		return nil
	case !s.answered:
		return o.answer(now)
	case s.push != nil:
		if o.complete() {
			o.record.early(s.followers.flows())
		}
		return append(s.followers.orderAll(now, OrderMove, o.Computed, Problem{}), o.review(now)...)
	case o.tellable() == s.told:
		return nil
	}
	s.told = o.tellable()
	return []Effect{Send{s.from, o.Transfer, &Progress{Session: s.ask.Session, Computed: s.told}}}
}

func (o *offer) onBeat(now Instant, m *Heartbeat) []Effect {
	o.renew(now)
	if tell := o.tellable(); o.state == offerOpen && o.session.answered && tell != m.Computed && tell.covers(m.Computed, o.layers) {
		return []Effect{Send{o.session.from, o.Transfer, &Progress{Session: m.Session, Computed: tell}}}
	}
	return nil
}

// onPush: the destination opened its memory to the followers here.
func (o *offer) onPush(now Instant, m *Push) []Effect {
	if o.state != offerOpen || !o.session.ask.Push {
		return nil
	}
	o.renew(now)
	s := o.session
	if s.push != nil {
		if s.push.Digest != m.Digest || !slices.Equal(s.push.Grants, m.Grants) {
			return o.close(now, ProblemOf(fmt.Errorf("%w: the destination opened other memory before", ErrContradiction)), false)
		}
		return o.pushed()
	}
	if m.Digest != s.digest {
		return o.close(now, ProblemOf(fmt.Errorf("%w: the source has %.8s, the destination %.8s", ErrDigest, s.digest, m.Digest)), false)
	}
	named := func(a, b FlowGrant) bool { return a.Flow == b.Flow && b.Grant != (kv.ID{}) }
	if !slices.EqualFunc(s.flows, m.Grants, named) {
		return o.close(now, ProblemOf(fmt.Errorf("%w: the memory that was opened is not what the plan needs", ErrTerms)), false)
	}
	s.push = m
	s.followers.assign(m.Grants)
	return append(s.followers.orderAll(now, OrderMove, o.Computed, Problem{}), o.review(now)...)
}

// pushed tells how far the followers here have come. What has arrived has arrived,
// whatever becomes of them after that.
func (o *offer) pushed() []Effect {
	s := o.session
	m := &Pushed{Session: s.ask.Session, Flows: s.followers.flows(), Problem: s.followers.problem}
	if s.arrived {
		m.Problem = Problem{}
	}
	return []Effect{Send{s.from, o.Transfer, m}}
}

// review goes on when the followers have.
func (o *offer) review(now Instant) []Effect {
	s := o.session
	switch {
	case o.state == offerGranting && !s.followers.problem.None():
		return o.close(now, s.followers.problem, false)
	case o.state == offerGranting && s.followers.done():
		o.state = offerOpen
		return o.answer(now)
	case o.state == offerOpen && s.push != nil:
		done := s.followers.problem.None() && s.followers.done() && o.complete()
		if s.arrived || !done && s.followers.problem.None() {
			return nil
		}
		s.arrived = done
		return o.pushed()
	case o.state == offerOpen && s.push == nil && !s.followers.problem.None():
		return o.close(now, s.followers.problem, false)
	case o.state == offerClosing && s.followers.done():
		return o.finish(now)
	}
	return nil
}

package handoff

import (
	"fmt"
	"slices"

	"meridian/internal/mutant"
	"meridian/kv"
	"meridian/reshard"
)

// sitting is a taker at an offer.
type sitting struct {
	asking
	own      uint64 // the session of the holder's own hands
	lease    Instant
	deadline Instant
	terms    *Terms
	digest   kv.Hash
	flows    []Opening
	team     *team
	answered bool
	push     *Push
	arrived  bool     // everything that was to be pushed
	said     *Problem // by the taker, as its last word
}

// seat begins a session.
func (o *offer) seat(now Instant, a asking, deadline Instant) []Effect {
	h := o.holder
	h.session++
	o.session = &sitting{asking: a, own: h.session, lease: now + h.Pace.Lease, deadline: deadline}
	o.record.Peer, o.record.PeerEngine, o.record.Push = a.from.Name, a.ask.Dst.Engine.ID, a.ask.Push
	o.record.DstRanks, o.record.Stages.Met = len(a.ask.Dst.Engine.Ranks), now
	t, err := OpenTicket(a.ask.Ticket, h.Key)
	if err == nil {
		err = t.Of.Check(o.Of)
	}
	if err == nil {
		err = o.fits(&a.ask.Dst)
	}
	if err != nil {
		return o.unseat(now, err)
	}
	o.state = planning
	o.session.terms = &Terms{Transfer: o.Transfer, Src: o.src, Dst: a.ask.Dst, Tokens: a.ask.Tokens, ContextTokens: o.Tokens}
	return []Effect{MakePlan{Source, o.session.own, o.session.terms}}
}

func (o *offer) fits(dst *Party) error {
	if err := dst.Engine.Validate(); err != nil {
		return err
	}
	if found := reshard.Compare(o.src.Engine.Side, dst.Engine.Side); len(found) > 0 {
		return &reshard.Incompatible{Differences: found}
	}
	return nil
}

// unseat refuses whoever sits there, before anything was opened to him.
func (o *offer) unseat(now Instant, err error) []Effect {
	refused := o.holder.refuse(o.session.asking, o.Transfer, err)
	o.past[o.session.from] = overcome{o.session.ask.Session, Trouble(err)}
	o.session, o.state = nil, held
	return refused
}

// planned goes on with a plan: the hands open what it names, or, when they are
// to write, wait for what the taker opens.
func (o *offer) planned(now Instant, plan *reshard.Plan, err error) []Effect {
	if err != nil {
		return o.unseat(now, err)
	}
	s := o.session
	s.terms.plan, s.digest = plan, plan.Digest()
	for _, f := range plan.Flows() {
		s.flows = append(s.flows, Opening{Flow: Flow{f.Src, f.Dst}})
	}
	o.record.Bytes, o.record.Stages.Planned = uint64(plan.Bytes()), now
	s.team = &team{
		pace: o.holder.Pace, self: o.holder.Self, session: s.own, transfer: o.Transfer, as: Source, engine: o.Engine,
		terms: s.terms, digest: s.digest, deadline: s.deadline,
	}
	if s.ask.Push {
		o.state = open
		return o.answer(now)
	}
	s.team.muster(s.flows)
	o.state = opening
	return append(s.team.command(now, OpenUp, 0, Problem{}), o.review(now)...)
}

// answer tells the taker all it needs, once it can make use of it.
func (o *offer) answer(now Instant) []Effect {
	s := o.session
	if o.Layers < o.layers && s.ask.Capabilities&CanLayers == 0 {
		return nil
	}
	if !s.answered {
		s.answered = true
		o.record.Stages.Moving = now
	}
	a := &Answer{
		Session: s.ask.Session, Version: min(HighVersion, s.ask.High), Src: o.src, ContextTokens: o.Tokens, Digest: s.digest,
		Layers: o.Layers, LeaseMs: uint64(o.holder.Pace.Lease / Millisecond),
	}
	if !s.ask.Push {
		a.Openings = s.team.openings()
	}
	return []Effect{Send{s.from, o.Transfer, a}}
}

// tellLayers: more layers are computed.
func (o *offer) tellLayers(now Instant) []Effect {
	s := o.session
	switch {
	case o.state != open:
		return nil
	case !s.answered:
		return o.answer(now)
	case s.push != nil:
		return append(s.team.command(now, MoveOn, o.Layers, Problem{}), o.review(now)...)
	}
	return []Effect{Send{s.from, o.Transfer, &Progress{Session: s.ask.Session, Layers: o.Layers}}}
}

func (o *offer) hearBeat(now Instant, m *Beat) []Effect {
	o.renew(now)
	if o.state == open && o.session.answered && m.Layers < o.Layers {
		return []Effect{Send{o.session.from, o.Transfer, &Progress{Session: m.Session, Layers: o.Layers}}}
	}
	return nil
}

// hearPush: the taker opened its memory to the hands here.
func (o *offer) hearPush(now Instant, m *Push) []Effect {
	if o.state != open || !o.session.ask.Push {
		return nil
	}
	o.renew(now)
	s := o.session
	if s.push != nil {
		if s.push.Digest != m.Digest || !slices.Equal(s.push.Openings, m.Openings) {
			return o.leave(now, Trouble(fmt.Errorf("%w: the taker opened other memory before", ErrContradiction)), false)
		}
		return o.pushed()
	}
	if m.Digest != s.digest && !mutant.Is(mutant.DigestIgnored) {
		return o.leave(now, Trouble(fmt.Errorf("%w: the source has %.8s, the destination %.8s", ErrDigest, s.digest, m.Digest)), false)
	}
	named := func(a, b Opening) bool { return a.Flow == b.Flow && b.Grant != (kv.ID{}) }
	if !slices.EqualFunc(s.flows, m.Openings, named) {
		return o.leave(now, Trouble(fmt.Errorf("%w: the memory that was opened is not what the plan needs", ErrTerms)), false)
	}
	s.push = m
	s.team.muster(m.Openings)
	return append(s.team.command(now, MoveOn, o.Layers, Problem{}), o.review(now)...)
}

// pushed tells how far the hands here have come. What has arrived has arrived,
// whatever becomes of them after that.
func (o *offer) pushed() []Effect {
	s := o.session
	m := &Pushed{Session: s.ask.Session, Flows: s.team.flows(), Problem: s.team.problem}
	if s.arrived {
		m.Problem = Problem{}
	}
	return []Effect{Send{s.from, o.Transfer, m}}
}

// review goes on when the hands have.
func (o *offer) review(now Instant) []Effect {
	s := o.session
	switch {
	case o.state == opening && !s.team.problem.None():
		return o.leave(now, s.team.problem, false)
	case o.state == opening && s.team.done():
		o.state = open
		return o.answer(now)
	case o.state == open && s.push != nil:
		done := s.team.problem.None() && s.team.done() && o.Layers == o.layers
		if s.arrived || !done && s.team.problem.None() {
			return nil
		}
		s.arrived = done
		return o.pushed()
	case o.state == open && s.push == nil && !s.team.problem.None():
		return o.leave(now, s.team.problem, false)
	case o.state == closing && s.team.done():
		return o.settle(now)
	}
	return nil
}

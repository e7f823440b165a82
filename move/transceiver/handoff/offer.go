package handoff

import (
	"fmt"

	"meridian/kv"
)

// offerState is where an offer stands; see the package comment.
type offerState uint8

const (
	offerAwaited offerState = iota + 1
	offerHeld
	offerPlanning
	offerGranting
	offerOpen
	offerClosing
)

// offer is one cache that is held, or asked for before it is.
type offer struct {
	Offer
	source     *SourceHome
	state      offerState
	src        Party
	layers     int      // of the model
	units      []uint32 // that an object cache holds for it
	unitBytes  int64
	ticket     []byte
	expires    Instant
	lastTicket Instant // when the last ticket that was seen for it expires
	session    *session
	past       map[kv.Member]pastSession // destinations' sessions that are over, the last of each
	ending     Problem                   // while closing: why
	final      bool                      // …and whether the offer ends with the session
	record     *Record
}

// pastSession is a destination's session that is over; those before it are too.
type pastSession struct {
	session uint64
	problem Problem
}

// serves reports whether a destination's session is the one at the offer.
func (o *offer) serves(from kv.Member, session uint64) bool {
	return o.session != nil && o.session.from == from && o.session.ask.Session == session
}

// await keeps an ask, for as long as its ticket and its asker's deadline say and
// signs of life come.
func (o *offer) await(now Instant, a asking, t *Ticket) {
	o.expires, o.lastTicket = min(t.Expires, after(now, a.ask.RemainingMs)), t.end(now)
	o.session = &session{asking: a, askBytes: a.ask.Dst.keptBytes(), lease: now + o.source.Timing.Lease, deadline: o.expires}
}

// onOtherAsk: another ask comes for what is not offered yet.
func (o *offer) onOtherAsk(now Instant, a asking, t *Ticket) []Effect {
	err := ErrTaken
	if o.session.from == a.from && a.ask.Session > o.session.ask.Session {
		err = o.source.admitAsk(a, o)
	}
	if err != nil {
		return o.source.refuse(a, o.Transfer, err)
	}
	o.await(now, a, t)
	return nil
}

// onRepeatedAsk: an ask was repeated. It is a sign of life, and says that the
// answer may have been lost.
func (o *offer) onRepeatedAsk(now Instant) []Effect {
	o.renew(now)
	if o.state == offerOpen {
		return o.answer(now)
	}
	return nil
}

func (o *offer) renew(now Instant) {
	if o.state != offerClosing {
		o.session.lease = now + o.source.Timing.Lease
	}
}

// onAsk: a destination asks for what is offered.
func (o *offer) onAsk(now Instant, a asking, t *Ticket) []Effect {
	if err := t.Fingerprint.Check(o.Fingerprint); err != nil {
		return o.source.refuse(a, o.Transfer, err)
	}
	switch {
	case a.ask.Session < o.past[a.from].session:
		return nil // late: that session is over
	case a.ask.Session == o.past[a.from].session && a.ask.Session > 0:
		return o.source.refuse(a, o.Transfer, o.past[a.from].problem.Err())
	case o.session == nil:
		return o.beginSession(now, a, after(now, a.ask.RemainingMs))
	case o.state == offerClosing:
		return nil // it will ask again, and be told then
	case o.session.from == a.from:
		// It began anew; what it had begun before is over.
		return o.close(now, ProblemOf(ErrLapsed), false)
	}
	return o.source.refuse(a, o.Transfer, ErrTaken)
}

func (o *offer) onEnd(now Instant, from kv.Member, m *End, ended []Effect) []Effect {
	s := o.session
	if !o.serves(from, m.Session) {
		// A session that was given up here had all it needed, or no destination will
		// come at all: not after the session that is closing, either.
		complete := s == nil && m.Session <= o.past[from].session && m.Problem.None()
		if complete || m.Final && (s == nil || o.state == offerClosing) {
			return append(ended, o.close(now, m.Problem, true)...)
		}
		return ended
	}
	// Ended comes when everything is quiet.
	contrary := m.Problem.None() && !s.answered || s.destinationEnd != nil && s.destinationEnd.None() != m.Problem.None()
	s.destinationEnd = &m.Problem
	if contrary {
		o.ending, o.final = Problem{}, false
		return o.close(now, ProblemOf(fmt.Errorf("%w: the destination cannot be done, or is not", ErrContradiction)), true)
	}
	return o.close(now, m.Problem, m.Problem.None() || m.Final)
}

// close begins the end of a session, or of an offer that has none: whatever was
// opened is closed first. A final end overrules one that is not.
func (o *offer) close(now Instant, why Problem, final bool) []Effect {
	if o.state == offerClosing {
		if final && !o.final {
			o.ending, o.final = why, true
		}
		return nil
	}
	o.state, o.ending, o.final = offerClosing, why, final
	if o.session == nil || o.session.followers == nil {
		return o.finish(now)
	}
	if o.ending.None() {
		o.record.Stages.Moved = now
	}
	effects := o.session.followers.orderAll(now, OrderStop, Computed{}, Problem{})
	if o.session.destinationEnd == nil { // it was not the destination's wish: let it know while followers are closing
		effects = append(effects, Send{o.session.from, o.Transfer, &Ended{Session: o.session.ask.Session, Problem: why}})
	}
	return append(effects, o.review(now)...)
}

// finish ends a session whose followers are quiet, and the offer with it if it is
// final or too old for another.
func (o *offer) finish(now Instant) []Effect {
	h, s := o.source, o.session
	expired := now >= o.expires && !o.final
	if expired {
		o.ending = ProblemOf(fmt.Errorf("%w: %s", ErrExpired, o.ending.Text))
	}
	var effects []Effect
	if s != nil {
		effects = append(effects, Send{s.from, o.Transfer, &Ended{Session: s.ask.Session, Problem: o.ending}})
		o.past[s.from] = pastSession{s.ask.Session, o.ending}
	}
	if !o.final && !expired {
		effects = append(effects, TellEngine{o.event(Dropped, o.ending)})
		o.session, o.state, o.ending = nil, offerHeld, Problem{}
		return effects
	}
	delete(h.offers, o.Transfer)
	if o.src.Engine.IsStore() {
		h.units.drop(o)
		h.rememberSpent(now, o.Transfer, o.ending, o.lastTicket)
	} else {
		h.remember(now, o.Transfer, o.ending, max(o.lastTicket, now+h.Timing.Lease))
	}
	effects = append(effects, TellEngine{o.event(Freed, o.ending)}, o.keep(now))
	if s != nil && s.followers != nil {
		effects = append(effects, h.notices.add(now, s.followers, o.ending)...)
	}
	return effects
}

func (o *offer) event(kind EventKind, how Problem) Event {
	e := Event{Kind: kind, As: Source, Engine: o.Engine, Transfer: o.Transfer, Problem: how}
	if kind == Freed && how.None() && o.session != nil {
		e.Taken = o.session.ask.Tokens
	}
	return e
}

// keep completes the record.
func (o *offer) keep(now Instant) Effect {
	r := o.record
	r.Stages.Ended, r.Problem = now, o.ending.Text
	givenBack := o.ending.Code == codeOf(ErrCancelled) || o.ending.Code == codeOf(ErrWithdrawn)
	r.Unused = givenBack && r.Stages.Met == 0 && (r.OfStore || r.ToKeep)
	if o.session != nil && o.session.followers != nil {
		r.addFlows(o.session.terms.plan, o.session.followers.flows())
	}
	return KeepRecord{r}
}

// onGone: an agent is gone.
func (o *offer) onGone(now Instant, m kv.Member) []Effect {
	s := o.session
	switch {
	case s == nil:
		return nil
	case o.state == offerAwaited && s.from == m:
		delete(o.source.offers, o.Transfer)
		return nil
	case s.followers != nil:
		s.followers.onGone(m)
	}
	if s.from == m && o.state != offerAwaited && o.state != offerClosing {
		return o.close(now, ProblemOf(fmt.Errorf("%w: %v", ErrGone, m)), false)
	}
	if s.followers == nil {
		return nil
	}
	return o.review(now)
}

func (o *offer) wake() Instant {
	switch {
	case o.session == nil:
		return o.expires
	case o.state == offerClosing:
		return o.session.followers.wake()
	case o.state == offerAwaited:
		return min(o.expires, o.session.lease)
	}
	next := min(o.session.lease, o.session.deadline)
	if o.session.followers != nil {
		next = min(next, o.session.followers.wake())
	}
	return next
}

// tick ends what lasted too long. What was opened is closed first.
func (o *offer) tick(now Instant) []Effect {
	s := o.session
	switch {
	case o.state == offerAwaited && now >= min(o.expires, s.lease):
		delete(o.source.offers, o.Transfer)
		return o.source.refuse(s.asking, o.Transfer, fmt.Errorf("%w: nothing was offered", ErrDeadline))
	case o.state == offerAwaited:
		return nil
	case s == nil && now >= o.expires:
		return o.close(now, ProblemOf(fmt.Errorf("%w: no decode engine took the offer", ErrExpired)), true)
	case s == nil:
		return nil
	case o.state != offerClosing && now >= s.lease:
		return o.close(now, ProblemOf(fmt.Errorf("%w of %v", ErrLapsed, s.from)), false)
	case o.state != offerClosing && now >= s.deadline:
		return o.close(now, ProblemOf(ErrDeadline), false)
	case s.followers == nil:
		return nil
	}
	effects, stuck := s.followers.tick(now)
	for _, m := range stuck {
		stuck := o.event(Stuck, Problem{})
		stuck.Member = m
		effects = append(effects, TellEngine{stuck})
	}
	return append(effects, o.review(now)...)
}

package handoff

import (
	"fmt"

	"meridian/internal/mutant"
)

// offerState is where an offer stands; see the package comment.
type offerState uint8

const (
	awaited offerState = iota + 1
	held
	planning
	opening
	open
	closing
)

// offer is one cache that is held, or asked for before it is.
type offer struct {
	Offer
	holder     *Holder
	state      offerState
	src        Party
	layers     int // of the model
	ticket     []byte
	expires    Instant
	lastTicket Instant // when the last ticket that was seen for it expires
	session    *sitting
	past       map[Member]overcome // takers' sessions that are over, the last of each
	ending     Problem             // while closing: why
	final      bool                // …and whether the offer ends with the session
	record     *Record
}

// overcome is a taker's session that is over; those before it are too.
type overcome struct {
	session uint64
	problem Problem
}

// sits reports whether a taker's session is the one at the offer.
func (o *offer) sits(from Member, session uint64) bool {
	return o.session != nil && o.session.from == from && o.session.ask.Session == session
}

// wait keeps an ask, for as long as its ticket and its asker's deadline say and
// signs of life come.
func (o *offer) wait(now Instant, a asking, t *Ticket) {
	o.expires, o.lastTicket = min(t.Expires, now.after(a.ask.RemainingMs)), t.end()
	o.session = &sitting{asking: a, lease: now + o.holder.Pace.Lease, deadline: o.expires}
}

// awaitOther: somebody else comes for what is not there yet.
func (o *offer) awaitOther(now Instant, a asking, t *Ticket) []Effect {
	if o.session.from == a.from && a.ask.Session > o.session.ask.Session {
		o.wait(now, a, t)
		return nil
	}
	return o.holder.refuse(a, o.Transfer, ErrTaken)
}

// heardAgain: an ask was repeated. It is a sign of life, and says that the
// answer may have been lost.
func (o *offer) heardAgain(now Instant) []Effect {
	o.renew(now)
	if o.state == open {
		return o.answer(now)
	}
	return nil
}

func (o *offer) renew(now Instant) {
	if o.state != closing && !mutant.Is(mutant.LeaseNotRenewed) {
		o.session.lease = now + o.holder.Pace.Lease
	}
}

// invite: somebody comes for what is there.
func (o *offer) invite(now Instant, a asking, t *Ticket) []Effect {
	if err := t.Of.Check(o.Of); err != nil {
		return o.holder.refuse(a, o.Transfer, err)
	}
	switch {
	case a.ask.Session < o.past[a.from].session:
		return nil // late: that session is over
	case a.ask.Session == o.past[a.from].session && a.ask.Session > 0:
		return o.holder.refuse(a, o.Transfer, o.past[a.from].problem.Err())
	case o.session == nil:
		return o.seat(now, a, now.after(a.ask.RemainingMs))
	case o.state == closing:
		return nil // it will ask again, and be told then
	case o.session.from == a.from:
		// It began anew; what it had begun before is over.
		return o.leave(now, Trouble(ErrLapsed), false)
	}
	return o.holder.refuse(a, o.Transfer, ErrTaken)
}

func (o *offer) hearEnd(now Instant, from Member, m *End, ended []Effect) []Effect {
	s := o.session
	if !o.sits(from, m.Session) {
		if s == nil && (m.Session <= o.past[from].session && m.Problem.None() || m.Final) {
			// A session that was given up here had all it needed, or nobody
			// will come at all.
			return append(ended, o.leave(now, m.Problem, true)...)
		}
		return ended
	}
	// Ended comes when everything is quiet.
	contrary := m.Problem.None() && !s.answered || s.said != nil && s.said.None() != m.Problem.None()
	s.said = &m.Problem
	if contrary {
		o.ending, o.final = Problem{}, false
		return o.leave(now, Trouble(fmt.Errorf("%w: the taker cannot be done, or is not", ErrContradiction)), true)
	}
	return o.leave(now, m.Problem, m.Problem.None() || m.Final)
}

// leave begins the end of a session, or of an offer that has none: whatever was
// opened is closed first. A final end overrules one that is not.
func (o *offer) leave(now Instant, why Problem, final bool) []Effect {
	if o.state == closing {
		if final && !o.final {
			o.ending, o.final = why, true
		}
		return nil
	}
	o.state, o.ending, o.final = closing, why, final
	if o.session == nil || o.session.team == nil {
		return o.settle(now)
	}
	if o.ending.None() {
		o.record.Stages.Moved = now
	}
	effects := o.session.team.command(now, CloseUp, 0, Problem{})
	if o.session.said == nil { // it was not the taker's wish: let it know while hands are closing
		effects = append(effects, Send{o.session.from, o.Transfer, &Ended{Session: o.session.ask.Session, Problem: why}})
	}
	if mutant.Is(mutant.ReleasedEarly) {
		return append(effects, o.settle(now)...)
	}
	return append(effects, o.review(now)...)
}

// settle ends a session whose hands are quiet, and the offer with it if it is
// final or too old for another.
func (o *offer) settle(now Instant) []Effect {
	h, s := o.holder, o.session
	expired := now >= o.expires && !o.final
	if expired {
		o.ending = Trouble(fmt.Errorf("%w: %s", ErrExpired, o.ending.Text))
	}
	var effects []Effect
	if s != nil {
		effects = append(effects, Send{s.from, o.Transfer, &Ended{Session: s.ask.Session, Problem: o.ending}})
		o.past[s.from] = overcome{s.ask.Session, o.ending}
	}
	if !o.final && !expired {
		effects = append(effects, Tell{o.event(Dropped, o.ending)})
		o.session, o.state, o.ending = nil, held, Problem{}
		return effects
	}
	delete(h.offers, o.Transfer)
	h.remember(now, o.Transfer, o.ending, max(o.lastTicket, now+h.Pace.Lease))
	effects = append(effects, Tell{o.event(Freed, o.ending)}, o.keep(now))
	if s != nil && s.team != nil {
		effects = append(effects, h.parting.add(now, s.team, o.ending)...)
	}
	return effects
}

func (o *offer) event(kind EventKind, how Problem) Event {
	return Event{Kind: kind, As: Source, Engine: o.Engine, Transfer: o.Transfer, Problem: how}
}

// keep completes the record.
func (o *offer) keep(now Instant) Effect {
	r := o.record
	r.Stages.Ended, r.Problem = now, o.ending.Text
	if o.session != nil && o.session.team != nil {
		r.addFlows(o.session.terms.plan, o.session.team.flows())
	}
	return Keep{r}
}

// lost: an agent is gone.
func (o *offer) lost(now Instant, m Member) []Effect {
	s := o.session
	switch {
	case s == nil:
		return nil
	case o.state == awaited && s.from == m:
		delete(o.holder.offers, o.Transfer)
		return nil
	case s.team != nil:
		s.team.lost(m)
	}
	if s.from == m && o.state != awaited && o.state != closing {
		return o.leave(now, Trouble(fmt.Errorf("%w: %v", ErrGone, m)), false)
	}
	if s.team == nil {
		return nil
	}
	return o.review(now)
}

func (o *offer) wake() Instant {
	switch {
	case o.session == nil:
		return o.expires
	case o.state == closing:
		return o.session.team.wake()
	case o.state == awaited:
		return min(o.expires, o.session.lease)
	}
	next := min(o.session.lease, o.session.deadline)
	if o.session.team != nil {
		next = min(next, o.session.team.wake())
	}
	return next
}

// tick ends what lasted too long. What was opened is closed first.
func (o *offer) tick(now Instant) []Effect {
	s := o.session
	switch {
	case o.state == awaited && now >= min(o.expires, s.lease):
		delete(o.holder.offers, o.Transfer)
		return o.holder.refuse(s.asking, o.Transfer, fmt.Errorf("%w: nothing was offered", ErrDeadline))
	case o.state == awaited:
		return nil
	case s == nil && now >= o.expires:
		return o.leave(now, Trouble(fmt.Errorf("%w: nobody took the offer", ErrExpired)), true)
	case s == nil:
		return nil
	case o.state != closing && now >= s.lease && !mutant.Is(mutant.SilenceIgnored):
		return o.leave(now, Trouble(fmt.Errorf("%w of %v", ErrLapsed, s.from)), false)
	case o.state != closing && now >= s.deadline:
		return o.leave(now, Trouble(ErrDeadline), false)
	case s.team == nil:
		return nil
	}
	effects, stuck := s.team.tick(now)
	for _, m := range stuck {
		stuck := o.event(Stuck, Problem{})
		stuck.Member = m
		effects = append(effects, Tell{stuck})
	}
	return append(effects, o.review(now)...)
}

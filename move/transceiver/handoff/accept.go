package handoff

import (
	"cmp"
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
)

// acceptState is where an accept stands; see the package comment.
type acceptState uint8

const (
	acceptAsked      acceptState = iota + 1
	acceptPlanning               // …and being planned
	acceptGranting               // the followers here open their memory
	acceptGranted                // the followers there write
	acceptMoving                 // the followers here read
	acceptStopping               // the followers here become quiet
	acceptConfirming             // the source is told
)

// accept is one cache that is on its way here.
type accept struct {
	Accept
	destination *DestinationHome
	session     uint64
	state       acceptState
	dst         Party
	answer      *Answer
	terms       *Terms
	followers   *followerGroup
	computed    Computed // by the source's engine, as far as is known
	engineTold  bool     // the engine knows how it ended
	sourceKnows bool     // the source needs no telling
	// returned: its ticket was given back after it had failed.
	returned bool
	problem  Problem
	flows    []FlowReport // of the source's followers, when they write

	next   Instant // when to say again what the state calls for; see say
	pause  Instant // …and how long after that; 0: it was not said yet
	beat   Instant // when to give a sign of life
	giveUp Instant // when to stop saying farewell
	record *Record
}

// inSession runs f if a message belongs to the accept's session.
func (in *accept) inSession(session uint64, f func() []Effect) []Effect {
	if session != in.session {
		return nil
	}
	return f()
}

// say tells the source what the state calls for, and tick says it again, after pauses that grow,
// until hush.
func (in *accept) say(now Instant) []Effect {
	var m Message
	switch in.state {
	case acceptAsked:
		m = &Ask{
			Session: in.session, Low: LowVersion, High: HighVersion, Capabilities: in.destination.Capabilities, Push: in.Push,
			Ticket: in.Ticket.Seal(in.destination.Key), Dst: in.dst, Tokens: in.Tokens, RemainingMs: until(now, in.Deadline),
		}
	case acceptGranted:
		m = &Push{Session: in.session, Digest: in.terms.plan.Digest(), Grants: in.followers.grants()}
	case acceptConfirming:
		final := in.problem.None() || in.problem.Code == codeOf(ErrCancelled)
		m = &End{Session: in.session, Ticket: in.Ticket.Seal(in.destination.Key), Problem: in.problem, Final: final}
	default:
		panic(fmt.Sprintf("handoff: nothing is repeated in state %d of an accept", in.state))
	}
	timing := in.destination.Timing
	in.pause = cmp.Or(in.pause, timing.FirstRetry)
	in.next, in.pause = now+in.pause, min(2*in.pause, timing.LastRetry)
	return []Effect{Send{in.Ticket.Home, in.Ticket.Transfer, m}}
}

// hush ends what say repeats.
func (in *accept) hush() { in.next, in.pause = Never, 0 }

func (in *accept) onAnswer(now Instant, m *Answer) []Effect {
	if in.state != acceptAsked {
		if in.answer != nil && (m.Digest != in.answer.Digest || !slices.Equal(m.Grants, in.answer.Grants)) {
			return in.fail(now, ProblemOf(fmt.Errorf("%w: the source answered otherwise before", ErrContradiction)))
		}
		return nil
	}
	in.record.Stages.Met, in.record.PeerEngine, in.record.SrcRanks = now, m.Src.Engine.ID, len(m.Src.Engine.Ranks)
	if err := in.checkFit(m); err != nil {
		return in.fail(now, ProblemOf(err))
	}
	in.hush()
	in.answer, in.state = m, acceptPlanning
	in.learn(m.Computed)
	in.beat = now + in.beatEvery()
	in.terms = &Terms{Transfer: in.Ticket.Transfer, Src: m.Src, Dst: in.dst, Tokens: in.Tokens, ContextTokens: m.ContextTokens}
	return []Effect{MakePlan{Destination, in.session, in.terms}}
}

// checkFit says what keeps the source's answer from being of use.
func (in *accept) checkFit(m *Answer) error {
	if m.Version < LowVersion || m.Version > HighVersion {
		return fmt.Errorf("%w: the source chose %d of %d to %d", ErrVersion, m.Version, LowVersion, HighVersion)
	}
	if err := fits(&m.Src.Engine, &in.dst.Engine, &m.Src.Engine); err != nil {
		return err
	}
	if _, possible := m.Computed.normal(in.layers(), in.Ticket.Tokens); !possible || m.ContextTokens != in.Ticket.Tokens {
		return fmt.Errorf("%w: %d tokens are held and %v computed, the ticket says %d tokens of %d layers",
			ErrTerms, m.ContextTokens, m.Computed, in.Ticket.Tokens, in.layers())
	}
	return nil
}

func (in *accept) beatEvery() Instant {
	return max(1, min(in.destination.Timing.beat(), Span(in.answer.LeaseMs)/6))
}

// planned goes on with a plan, if it is the source's too.
func (in *accept) planned(now Instant, plan *reshard.Plan, err error) []Effect {
	var flows []FlowGrant
	if err == nil {
		flows, err = flowsOf(plan)
	}
	if err != nil {
		return in.fail(now, ProblemOf(err))
	}
	in.terms.plan = plan
	in.record.Bytes, in.record.Stages.Planned = uint64(plan.Bytes()), now
	if digest := plan.Digest(); digest != in.answer.Digest {
		return in.fail(now, ProblemOf(fmt.Errorf("%w: the source has %.8s, the destination %.8s; their builds may differ", ErrDigest, in.answer.Digest, digest)))
	}
	in.followers = &followerGroup{
		timing: in.destination.Timing, self: in.destination.Self, session: in.session, transfer: in.Ticket.Transfer, as: Destination, engine: in.Engine,
		terms: in.terms, digest: in.answer.Digest, deadline: in.Deadline,
	}
	if in.Push {
		in.followers.assign(flows)
		in.state = acceptGranting
		return append(in.followers.orderAll(now, OrderGrant, Computed{}, Problem{}), in.review(now)...)
	}
	granted := func(want, have FlowGrant) bool { return want.Flow == have.Flow && have.Grant != (kv.ID{}) }
	if !slices.EqualFunc(flows, in.answer.Grants, granted) {
		return in.fail(now, ProblemOf(fmt.Errorf("%w: the grants are not what the plan needs", ErrTerms)))
	}
	in.followers.assign(in.answer.Grants)
	in.state, in.record.Stages.Moving = acceptMoving, now
	return append(in.followers.orderAll(now, OrderMove, in.movable(), Problem{}), in.review(now)...)
}

// movable is how far bytes may move now.
func (in *accept) movable() Computed {
	return in.computed
}

// layers is how many the model has. The source's engine has as many, or does not fit.
func (in *accept) layers() int { return len(in.dst.Engine.Side.Geometry.Layers) }

// learn takes what the source says is computed, and reports whether that is news.
func (in *accept) learn(c Computed) bool {
	normal, possible := c.normal(in.layers(), in.Ticket.Tokens)
	if !possible || normal == in.computed || !normal.covers(in.computed, in.layers()) {
		return false
	}
	in.computed = normal
	return true
}

func (in *accept) onProgress(now Instant, m *Progress) []Effect {
	if !in.learn(m.Computed) || in.state != acceptMoving {
		return nil
	}
	if in.computed.Layers == in.layers() {
		in.record.early(in.followers.flows())
	}
	return append(in.followers.orderAll(now, OrderMove, in.movable(), Problem{}), in.review(now)...)
}

func (in *accept) onPushed(now Instant, m *Pushed) []Effect {
	switch {
	case in.state != acceptGranted && in.state != acceptStopping:
		return nil
	case !m.Problem.None() && in.state == acceptStopping:
		return in.fail(now, ProblemOf(fmt.Errorf("%w: the source was done before, and now: %s", ErrContradiction, m.Problem.Text)))
	case !m.Problem.None():
		return in.fail(now, m.Problem)
	case in.state == acceptStopping:
		return nil
	}
	in.flows = m.Flows
	return in.arrived(now, m.Flows)
}

// review goes on when the followers here have.
func (in *accept) review(now Instant) []Effect {
	if in.followers == nil {
		return nil
	}
	done := in.followers.done()
	switch {
	case in.state < acceptStopping && !in.followers.problem.None():
		return in.fail(now, in.followers.problem)
	case !done:
		return nil
	case in.state == acceptGranting:
		in.state, in.record.Stages.Moving = acceptGranted, now
		return in.say(now)
	case in.state == acceptMoving:
		return in.arrived(now, in.followers.flows())
	case in.state == acceptStopping:
		return in.finish(now)
	}
	return nil
}

// arrived looks whether everything has. Then the followers here become quiet; only
// after that is it certain that nothing will be written any more.
func (in *accept) arrived(now Instant, flows []FlowReport) []Effect {
	all, err := arrived(in.terms.plan, flows, in.terms.layers())
	switch {
	case err != nil:
		return in.fail(now, ProblemOf(err))
	case !all:
		return nil
	}
	in.hush()
	in.state, in.record.Stages.Moved = acceptStopping, now
	return append(in.followers.orderAll(now, OrderStop, Computed{}, Problem{}), in.review(now)...)
}

// fail ends the accept badly, unless it has ended. The engine is told at once,
// and again when its blocks are free.
func (in *accept) fail(now Instant, why Problem) []Effect {
	if in.engineTold || in.state == acceptConfirming {
		return nil
	}
	in.hush()
	in.engineTold, in.problem = true, why
	effects := []Effect{TellEngine{in.event(Failed)}}
	if in.followers == nil || in.followers.kind == 0 {
		return append(effects, in.finish(now)...)
	}
	if in.state != acceptStopping {
		in.state = acceptStopping
		effects = append(effects, in.followers.orderAll(now, OrderStop, Computed{}, Problem{})...)
	}
	return append(effects, in.review(now)...)
}

func (in *accept) event(kind EventKind) Event {
	return Event{Kind: kind, As: Destination, Engine: in.Engine, Transfer: in.Ticket.Transfer, Problem: in.problem}
}

// finish ends the accept, whose followers are quiet.
func (in *accept) finish(now Instant) []Effect {
	t := in.destination
	end := TellEngine{in.event(Ready)}
	if !in.problem.None() {
		end = TellEngine{in.event(Freed)}
	}
	effects := []Effect{end, in.keep(now)}
	in.engineTold = true
	over := &t.over
	if in.dst.Engine.IsStore() {
		over = &t.stored
	}
	over.add(in.Ticket.Transfer, in.problem)
	if in.followers != nil {
		effects = append(effects, t.notices.add(now, in.followers, in.problem)...)
		in.followers = nil
	}
	if in.sourceKnows {
		delete(t.accepts, in.Ticket.Transfer)
		return effects
	}
	return append(effects, in.sendEnd(now)...)
}

// keep completes the record.
func (in *accept) keep(now Instant) Effect {
	r := in.record
	r.Stages.Ended, r.Problem = now, in.problem.Text
	if in.followers != nil {
		flows := in.followers.flows()
		if in.Push {
			flows = in.flows
		}
		r.addFlows(in.terms.plan, flows)
	}
	return KeepRecord{r}
}

// sendEnd tells the source how it ended, for a while.
func (in *accept) sendEnd(now Instant) []Effect {
	in.hush() // it may have said less before
	in.state, in.giveUp = acceptConfirming, now+in.destination.Timing.Lease
	return in.say(now)
}

func (in *accept) onRefusal(now Instant, m *Refusal) []Effect {
	if in.state == acceptConfirming {
		delete(in.destination.accepts, in.Ticket.Transfer)
		return nil
	}
	in.sourceKnows = true
	why := m.Problem
	if why.None() {
		why = ProblemOf(ErrDeclined)
	}
	return in.fail(now, why)
}

// onEnded: the source is through with the session.
func (in *accept) onEnded(now Instant, m *Ended) []Effect {
	if in.state == acceptConfirming {
		if in.returned && m.Problem.Code != in.problem.Code {
			return nil // it answers what was said before the ticket was given back
		}
		delete(in.destination.accepts, in.Ticket.Transfer)
		return nil
	}
	in.sourceKnows = true
	why := m.Problem
	if why.None() {
		why = ProblemOf(fmt.Errorf("%w: the source says that it is done", ErrContradiction))
	}
	return in.fail(now, why)
}

// onGone: an agent is gone.
func (in *accept) onGone(now Instant, m kv.Member) []Effect {
	if in.followers != nil {
		in.followers.onGone(m)
	}
	if m != in.Ticket.Home {
		return in.review(now)
	}
	if in.state == acceptConfirming {
		delete(in.destination.accepts, in.Ticket.Transfer)
		return nil
	}
	in.sourceKnows = true
	return append(in.fail(now, ProblemOf(fmt.Errorf("%w: %v", ErrGone, m))), in.review(now)...)
}

// answerBy is when an accept that has no answer is given up.
func (in *accept) answerBy() Instant {
	if in.state != acceptAsked || in.AnswerBy == 0 {
		return Never
	}
	return in.AnswerBy
}

func (in *accept) wake() Instant {
	if in.state == acceptConfirming {
		return min(in.next, in.giveUp)
	}
	next := in.next
	if !in.engineTold {
		next = min(next, in.Deadline, in.answerBy())
	}
	if in.state > acceptAsked {
		next = min(next, in.beat)
	}
	if in.followers != nil {
		next = min(next, in.followers.wake())
	}
	return next
}

func (in *accept) tick(now Instant) []Effect {
	if in.state == acceptConfirming && now >= in.giveUp {
		delete(in.destination.accepts, in.Ticket.Transfer)
		return nil
	}
	var effects []Effect
	if !in.engineTold && now >= in.Deadline {
		effects = in.fail(now, ProblemOf(fmt.Errorf("%w: the request had so long", ErrDeadline)))
	}
	if !in.engineTold && now >= in.answerBy() {
		effects = in.fail(now, ProblemOf(fmt.Errorf("%w of %v, which has been asked", ErrLapsed, in.Ticket.Home)))
	}
	if now >= in.next {
		in.record.countRetry()
		effects = append(effects, in.say(now)...)
	}
	if in.state > acceptAsked && in.state < acceptConfirming && now >= in.beat {
		in.beat = now + in.beatEvery()
		effects = append(effects, Send{in.Ticket.Home, in.Ticket.Transfer, &Heartbeat{Session: in.session, Computed: in.computed}})
	}
	if in.followers == nil || in.state == acceptConfirming {
		return effects
	}
	asked, stuck := in.followers.tick(now)
	effects = append(effects, asked...)
	for _, m := range stuck {
		e := in.event(Stuck)
		e.Member = m
		effects = append(effects, TellEngine{e})
	}
	return append(effects, in.review(now)...)
}

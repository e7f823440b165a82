package handoff

import (
	"fmt"
	"slices"

	"meridian/internal/mutant"
	"meridian/kv"
	"meridian/reshard"
)

// intakeState is where an intake stands; see the package comment.
type intakeState uint8

const (
	asked    intakeState = iota + 1
	agreed               // …and being planned
	lending              // the hands here open their memory
	lent                 // the hands there write
	moving               // the hands here read
	stopping             // the hands here become quiet
	leaving              // the holder is told
)

// intake is one cache that is on its way here.
type intake struct {
	Accept
	taker   *Taker
	ticket  Ticket
	session uint64
	state   intakeState
	dst     Party
	answer  *Answer
	terms   *Terms
	team    *team
	layers  int  // that the holder has computed, as far as is known
	told    bool // the engine knows how it ended
	mute    bool // the holder needs no telling
	// declined: its ticket was given back after it had failed.
	declined bool
	problem  Problem
	flows    []FlowReport // of the holder's hands, when they write

	say         func(now Instant) Message // what is repeated until it is answered
	next, pause Instant                   // …and when
	beat        Instant                   // when to give a sign of life
	giveUp      Instant                   // when to stop saying farewell
	record      *Record
}

// ours runs f if a message belongs to the intake's session.
func (in *intake) ours(session uint64, f func() []Effect) []Effect {
	if session != in.session {
		return nil
	}
	return f()
}

// begin says something, and goes on saying it until hush.
func (in *intake) begin(now Instant, say func(now Instant) Message) []Effect {
	in.say, in.pause = say, in.taker.Pace.FirstRetry
	return in.repeat(now)
}

func (in *intake) repeat(now Instant) []Effect {
	in.next = now + in.pause
	in.pause = min(2*in.pause, in.taker.Pace.LastRetry)
	return in.send(in.say(now))
}

func (in *intake) hush() { in.say, in.next = nil, Never }

func (in *intake) send(m Message) []Effect {
	return []Effect{Send{in.ticket.Home, in.ticket.Transfer, m}}
}

func (in *intake) ask(now Instant) Message {
	return &Ask{
		Session: in.session, Low: LowVersion, High: HighVersion, Capabilities: allCapabilities, Push: in.Push, Ticket: in.Ticket,
		Dst: in.dst, Tokens: in.Tokens, RemainingMs: now.until(in.Deadline),
	}
}

func (in *intake) hearAnswer(now Instant, m *Answer) []Effect {
	if in.state != asked {
		if in.answer != nil && (m.Digest != in.answer.Digest || !slices.Equal(m.Openings, in.answer.Openings)) {
			return in.fail(now, Trouble(fmt.Errorf("%w: the holder answered otherwise before", ErrContradiction)))
		}
		return nil
	}
	in.record.Stages.Met, in.record.PeerEngine, in.record.SrcRanks = now, m.Src.Engine.ID, len(m.Src.Engine.Ranks)
	if err := in.fits(m); err != nil {
		return in.fail(now, Trouble(err))
	}
	in.hush()
	in.answer, in.state, in.layers = m, agreed, max(in.layers, m.Layers)
	in.beat = now + in.beatEvery()
	in.terms = &Terms{Transfer: in.ticket.Transfer, Src: m.Src, Dst: in.dst, Tokens: in.Tokens, ContextTokens: m.ContextTokens}
	return []Effect{MakePlan{Destination, in.session, in.terms}}
}

// fits says what keeps the holder's answer from being of use.
func (in *intake) fits(m *Answer) error {
	if m.Version < LowVersion || m.Version > HighVersion {
		return fmt.Errorf("%w: the holder chose %d of %d to %d", ErrVersion, m.Version, LowVersion, HighVersion)
	}
	if err := m.Src.Engine.Validate(); err != nil {
		return err
	}
	if found := reshard.Compare(m.Src.Engine.Side, in.dst.Engine.Side); len(found) > 0 {
		return &reshard.Incompatible{Differences: found}
	}
	if m.ContextTokens != in.ticket.Tokens || m.Layers > len(m.Src.Engine.Side.Geometry.Layers) {
		return fmt.Errorf("%w: %d tokens and %d layers are held, the ticket says %d of %d",
			ErrTerms, m.ContextTokens, m.Layers, in.ticket.Tokens, len(m.Src.Engine.Side.Geometry.Layers))
	}
	return nil
}

func (in *intake) beatEvery() Instant {
	return max(1, min(in.taker.Pace.beat(), Span(in.answer.LeaseMs)/6))
}

// planned goes on with a plan, if it is the holder's too.
func (in *intake) planned(now Instant, plan *reshard.Plan, err error) []Effect {
	if err != nil {
		return in.fail(now, Trouble(err))
	}
	in.terms.plan = plan
	in.record.Bytes, in.record.Stages.Planned = uint64(plan.Bytes()), now
	if digest := plan.Digest(); digest != in.answer.Digest && !mutant.Is(mutant.DigestIgnored) {
		return in.fail(now, Trouble(fmt.Errorf("%w: the source has %.8s, the destination %.8s; their builds may differ", ErrDigest, in.answer.Digest, digest)))
	}
	in.team = &team{
		pace: in.taker.Pace, self: in.taker.Self, session: in.session, transfer: in.ticket.Transfer, as: Destination, engine: in.Engine,
		terms: in.terms, digest: in.answer.Digest, deadline: in.Deadline,
	}
	openings := make([]Opening, len(plan.Flows()))
	for i, f := range plan.Flows() {
		openings[i].Flow = Flow{f.Src, f.Dst}
	}
	if in.Push {
		in.team.muster(openings)
		in.state = lending
		return append(in.team.command(now, OpenUp, 0, Problem{}), in.review(now)...)
	}
	granted := func(want, have Opening) bool { return want.Flow == have.Flow && have.Grant != (kv.ID{}) }
	if !slices.EqualFunc(openings, in.answer.Openings, granted) && !mutant.Is(mutant.DigestIgnored) {
		return in.fail(now, Trouble(fmt.Errorf("%w: the grants are not what the plan needs", ErrTerms)))
	}
	in.team.muster(in.answer.Openings)
	in.state, in.record.Stages.Moving = moving, now
	return append(in.team.command(now, MoveOn, in.reach(), Problem{}), in.review(now)...)
}

// reach is how far bytes may move now.
func (in *intake) reach() int {
	if mutant.Is(mutant.LayersUnseen) {
		return in.terms.layers()
	}
	return in.layers
}

func (in *intake) hearProgress(now Instant, m *Progress) []Effect {
	if m.Layers <= in.layers || in.terms != nil && m.Layers > in.terms.layers() {
		return nil
	}
	in.layers = m.Layers
	if in.state != moving {
		return nil
	}
	return append(in.team.command(now, MoveOn, in.reach(), Problem{}), in.review(now)...)
}

func (in *intake) push(Instant) Message {
	return &Push{Session: in.session, Digest: in.terms.plan.Digest(), Openings: in.team.openings()}
}

func (in *intake) hearPushed(now Instant, m *Pushed) []Effect {
	switch {
	case in.state != lent && in.state != stopping:
		return nil
	case !m.Problem.None() && in.state == stopping:
		return in.fail(now, Trouble(fmt.Errorf("%w: the source was done before, and now: %s", ErrContradiction, m.Problem.Text)))
	case !m.Problem.None():
		return in.fail(now, m.Problem)
	case in.state == stopping:
		return nil
	}
	in.flows = m.Flows
	return in.arrived(now, m.Flows)
}

// review goes on when the hands here have.
func (in *intake) review(now Instant) []Effect {
	if in.team == nil {
		return nil
	}
	done := in.team.done()
	if mutant.Is(mutant.ReadyEarly) && in.state == moving {
		done = slices.ContainsFunc(in.team.ties, in.team.content)
	}
	switch {
	case in.state < stopping && !in.team.problem.None():
		return in.fail(now, in.team.problem)
	case !done:
		return nil
	case in.state == lending:
		in.state, in.record.Stages.Moving = lent, now
		return in.begin(now, in.push)
	case in.state == moving:
		return in.arrived(now, in.team.flows())
	case in.state == stopping:
		return in.settle(now)
	}
	return nil
}

// arrived looks whether everything has. Then the hands here become quiet; only
// after that is it certain that nothing will be written any more.
func (in *intake) arrived(now Instant, flows []FlowReport) []Effect {
	all, err := arrived(in.terms.plan, flows, in.terms.layers())
	if mutant.Is(mutant.ReadyEarly) {
		all, err = in.layers == in.terms.layers(), nil
	}
	switch {
	case err != nil:
		return in.fail(now, Trouble(err))
	case !all:
		return nil
	}
	in.hush()
	in.state, in.record.Stages.Moved = stopping, now
	return append(in.team.command(now, CloseUp, 0, Problem{}), in.review(now)...)
}

// fail ends the intake badly, unless it has ended. The engine is told at once,
// and again when its blocks are free.
func (in *intake) fail(now Instant, why Problem) []Effect {
	if in.told || in.state == leaving {
		return nil
	}
	in.hush()
	in.told, in.problem = true, why
	effects := []Effect{Tell{in.event(Failed)}}
	if in.team == nil || in.team.kind == 0 || mutant.Is(mutant.FreedUnquiet) {
		return append(effects, in.settle(now)...)
	}
	if in.state != stopping {
		in.state = stopping
		effects = append(effects, in.team.command(now, CloseUp, 0, Problem{})...)
	}
	return append(effects, in.review(now)...)
}

func (in *intake) event(kind EventKind) Event {
	return Event{Kind: kind, As: Destination, Engine: in.Engine, Transfer: in.ticket.Transfer, Problem: in.problem}
}

// settle ends the intake, whose hands are quiet.
func (in *intake) settle(now Instant) []Effect {
	t := in.taker
	end := Tell{in.event(Ready)}
	if !in.problem.None() {
		end = Tell{in.event(Freed)}
	}
	effects := []Effect{end, in.keep(now)}
	if mutant.Is(mutant.FreedTwice) {
		effects = append(effects, end)
	}
	in.told = true
	t.over.add(in.ticket.Transfer, in.problem)
	if in.team != nil {
		effects = append(effects, t.parting.add(now, in.team, in.problem)...)
		in.team = nil
	}
	if in.mute {
		delete(t.intakes, in.ticket.Transfer)
		return effects
	}
	return append(effects, in.takeLeave(now)...)
}

// keep completes the record.
func (in *intake) keep(now Instant) Effect {
	r := in.record
	r.Stages.Ended, r.Problem = now, in.problem.Text
	if in.team != nil {
		flows := in.team.flows()
		if in.Push {
			flows = in.flows
		}
		r.addFlows(in.terms.plan, flows)
	}
	return Keep{r}
}

// takeLeave tells the holder how it ended, for a while.
func (in *intake) takeLeave(now Instant) []Effect {
	in.state, in.giveUp = leaving, now+in.taker.Pace.Lease
	return in.begin(now, in.end)
}

func (in *intake) end(Instant) Message {
	cancelled := in.problem.Code == codeOf(ErrCancelled)
	return &End{Session: in.session, Ticket: in.Ticket, Problem: in.problem, Final: in.problem.None() || cancelled}
}

func (in *intake) hearRefusal(now Instant, m *Refusal) []Effect {
	if in.state == leaving {
		delete(in.taker.intakes, in.ticket.Transfer)
		return nil
	}
	in.mute = true
	why := m.Problem
	if why.None() {
		why = Trouble(ErrDeclined)
	}
	return in.fail(now, why)
}

// hearEnded: the holder is through with the session.
func (in *intake) hearEnded(now Instant, m *Ended) []Effect {
	if in.state == leaving {
		if in.declined && m.Problem.Code != in.problem.Code {
			return nil // it answers what was said before the ticket was given back
		}
		delete(in.taker.intakes, in.ticket.Transfer)
		return nil
	}
	in.mute = true
	why := m.Problem
	if why.None() {
		why = Trouble(fmt.Errorf("%w: the holder says that it is done", ErrContradiction))
	}
	return in.fail(now, why)
}

// lost: an agent is gone.
func (in *intake) lost(now Instant, m Member) []Effect {
	if in.team != nil {
		in.team.lost(m)
	}
	if m != in.ticket.Home {
		return in.review(now)
	}
	if in.state == leaving {
		delete(in.taker.intakes, in.ticket.Transfer)
		return nil
	}
	in.mute = true
	return append(in.fail(now, Trouble(fmt.Errorf("%w: %v", ErrGone, m))), in.review(now)...)
}

func (in *intake) wake() Instant {
	if in.state == leaving {
		return min(in.next, in.giveUp)
	}
	next := in.next
	if !in.told {
		next = min(next, in.Deadline)
	}
	if in.state > asked {
		next = min(next, in.beat)
	}
	if in.team != nil {
		next = min(next, in.team.wake())
	}
	return next
}

func (in *intake) tick(now Instant) []Effect {
	if in.state == leaving && now >= in.giveUp {
		delete(in.taker.intakes, in.ticket.Transfer)
		return nil
	}
	var effects []Effect
	if !in.told && now >= in.Deadline {
		effects = in.fail(now, Trouble(fmt.Errorf("%w: the request had so long", ErrDeadline)))
	}
	if now >= in.next {
		in.record.countRetry()
		effects = append(effects, in.repeat(now)...)
	}
	if in.state > asked && in.state < leaving && now >= in.beat {
		in.beat = now + in.beatEvery()
		effects = append(effects, in.send(&Beat{Session: in.session, Layers: in.layers})...)
	}
	if in.team == nil || in.state == leaving {
		return effects
	}
	asked, stuck := in.team.tick(now)
	effects = append(effects, asked...)
	for _, m := range stuck {
		e := in.event(Stuck)
		e.Member = m
		effects = append(effects, Tell{e})
	}
	return append(effects, in.review(now)...)
}

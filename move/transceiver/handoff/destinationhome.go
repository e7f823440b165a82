package handoff

import (
	"cmp"
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
)

// DestinationOptions configures NewDestinationHome.
type DestinationOptions struct {
	Self   kv.Member
	Key    Key
	Timing Timing
	// MaxAccepts bounds hand-offs that have not ended; default 4096.
	MaxAccepts int
	// Stores is what the object caches among the engines may take up instead.
	Stores StoreLimits
	// Capabilities is what is said of this build; default AllCapabilities.
	Capabilities uint64
}

// DestinationHome speaks for the decode engines whose home is this agent: it asks for
// caches and has them brought.
type DestinationHome struct {
	DestinationOptions
	engines map[string]*Engine
	accepts map[kv.ID]*accept
	over    endings
	stored  endings // of what object caches took
	notices finalNotices
	session uint64
}

// NewDestinationHome has no engines yet.
func NewDestinationHome(o DestinationOptions) *DestinationHome {
	o.Timing, o.MaxAccepts, o.Stores = o.Timing.WithDefaults(), cmp.Or(o.MaxAccepts, 4096), o.Stores.WithDefaults()
	o.Capabilities = cmp.Or(o.Capabilities, AllCapabilities)
	return &DestinationHome{
		DestinationOptions: o, engines: make(map[string]*Engine), accepts: make(map[kv.ID]*accept),
		over: newEndings(), stored: newEndings(),
	}
}

// ended tells how a hand-off ended, if that is remembered.
func (t *DestinationHome) ended(transfer kv.ID) (how Problem, over bool) {
	if how, over = t.over.how[transfer]; !over {
		how, over = t.stored.how[transfer]
	}
	return how, over
}

// endings remembers how the last hand-offs ended, also those that were cancelled
// before they began.
type endings struct {
	how   map[kv.ID]Problem
	order []kv.ID
	// unheard are those that were cancelled before they began: no source was told.
	unheard map[kv.ID]bool
}

func newEndings() endings {
	return endings{how: make(map[kv.ID]Problem), unheard: make(map[kv.ID]bool)}
}

const rememberedEndings = 1 << 12

func (e *endings) add(id kv.ID, how Problem) {
	_, known := e.how[id]
	how.Differences = nil // its text names them
	e.how[id] = how
	delete(e.unheard, id)
	if known {
		return
	}
	if e.order = append(e.order, id); len(e.order) > rememberedEndings {
		delete(e.how, e.order[0])
		delete(e.unheard, e.order[0])
		e.order = e.order[1:]
	}
}

// Join makes an engine known. It must be valid.
func (t *DestinationHome) Join(e *Engine) { t.engines[e.ID] = e }

// Leave takes an engine away and ends what it takes. The request may go on
// elsewhere, so the offer stays for another engine.
func (t *DestinationHome) Leave(now Instant, engine string) []Effect {
	delete(t.engines, engine)
	why := ProblemOf(fmt.Errorf("%w: decode engine %s has left", ErrGone, engine))
	var effects []Effect
	for _, id := range inOrder(t.accepts) {
		if in := t.accepts[id]; in.Engine == engine {
			effects = append(effects, in.fail(now, why)...)
		}
	}
	return effects
}

// Len is how many hand-offs have not ended.
func (t *DestinationHome) Len() int { return len(t.accepts) }

// Accept is a decode engine's: it wants this cache, in these blocks.
type Accept struct {
	// Ticket was opened for what the engine's own request is of; see OpenTicketFor.
	Ticket  Ticket
	Engine  string
	Holding reshard.Holding
	// Tokens is what the engine lacks: all of the ticket's but a prefix.
	Tokens kv.TokenRange
	// Push has the source write, instead of reading from it.
	Push     bool
	Deadline Instant
	// AnswerBy is when the source must have answered, where it is known to have the
	// cache already: one that does not is taken for dead. 0: by the deadline.
	AnswerBy Instant
}

func (a *Accept) same(other *Accept) bool {
	return a.Ticket == other.Ticket && a.Engine == other.Engine && a.Tokens == other.Tokens && a.Push == other.Push &&
		a.Holding.DP == other.Holding.DP && slices.EqualFunc(a.Holding.Tables, other.Holding.Tables, slices.Equal)
}

// Accept begins an accept, whose blocks are the destination's until Ready or Freed, or
// refuses it. Repeating it changes nothing.
func (t *DestinationHome) Accept(now Instant, a Accept) ([]Effect, error) {
	transfer := a.Ticket.Transfer
	if standing := t.accepts[transfer]; standing != nil && standing.state != acceptConfirming {
		switch {
		case !standing.same(&a):
			return nil, fmt.Errorf("%w: transfer %s was accepted before, otherwise", ErrContradiction, transfer)
		case standing.engineTold:
			return nil, fmt.Errorf("%w: transfer %s failed, and its blocks are not free yet", ErrDeclined, transfer)
		}
		return nil, nil
	}
	engine := t.engines[a.Engine]
	how, over := t.ended(transfer)
	switch {
	case over && how.None():
		return nil, fmt.Errorf("%w: here, by transfer %s", ErrUsed, transfer)
	case over && how.Code == codeOf(ErrCancelled):
		return nil, how.Err()
	case engine == nil:
		return nil, fmt.Errorf("%w: no engine %q here", ErrMember, a.Engine)
	case a.Tokens.Start < 0 || a.Tokens.End > a.Ticket.Tokens || a.Tokens.Start > a.Tokens.End:
		return nil, fmt.Errorf("%w: tokens %v of a cache of %d", ErrTerms, a.Tokens, a.Ticket.Tokens)
	case now >= a.Deadline:
		return nil, ErrDeadline
	}
	dst := Party{Engine: *engine, Holding: a.Holding}
	most, beside := t.MaxAccepts, make([]*Party, 0, len(t.accepts)) // engines, or object caches
	if engine.IsStore() {
		most = t.Stores.MaxAccepts
	}
	for _, in := range t.accepts {
		if in.dst.Engine.IsStore() == engine.IsStore() {
			beside = append(beside, &in.dst)
		}
	}
	if err := dst.admitTables(slices.Values(beside)); err != nil {
		return nil, err
	}
	if len(beside) >= most {
		return nil, fmt.Errorf("%w: %d hand-offs run already", ErrDeclined, len(beside))
	}
	t.session++
	in := &accept{Accept: a, destination: t, session: t.session, state: acceptAsked, dst: dst}
	in.record = &Record{
		Transfer: transfer, As: Destination, Engine: a.Engine, OfStore: engine.IsStore(), Peer: a.Ticket.Home.Name, Tokens: a.Tokens.Len(), Push: a.Push, Promised: a.Ticket.Expires == Never,
		DstRanks: len(engine.Ranks), Direct: true, Stages: Times{Begun: now},
	}
	t.accepts[transfer] = in
	return in.say(now), nil
}

// Cancel ends an accept, also one that has not come yet. Its blocks are the
// engine's again at Freed. What is Ready stays so.
func (t *DestinationHome) Cancel(now Instant, transfer kv.ID) []Effect {
	if in := t.accepts[transfer]; in != nil {
		return in.fail(now, ProblemOf(ErrCancelled))
	}
	_, over := t.ended(transfer)
	unheard := !over || t.over.unheard[transfer]
	t.over.add(transfer, ProblemOf(ErrCancelled))
	if unheard {
		t.over.unheard[transfer] = true
	}
	return nil
}

// ReturnTicket gives a ticket back that was not used, or whose accept failed and will
// not be tried again, so that its source does not keep blocks for it.
func (t *DestinationHome) ReturnTicket(now Instant, ticket Ticket) []Effect {
	cancelled := ProblemOf(ErrCancelled)
	in := t.accepts[ticket.Transfer]
	if in != nil && in.state != acceptConfirming {
		return t.Cancel(now, ticket.Transfer)
	}
	how, over := t.ended(ticket.Transfer)
	heard := how.Code == cancelled.Code && !t.over.unheard[ticket.Transfer]
	if over && (how.None() || heard) {
		return nil
	}
	t.over.add(ticket.Transfer, cancelled)
	if in == nil {
		t.session++
		in = &accept{Accept: Accept{Ticket: ticket}, destination: t, session: t.session}
		t.accepts[ticket.Transfer] = in
	}
	in.problem, in.returned = cancelled, true
	return in.sendEnd(now)
}

// Receive takes a message from another agent, or from the follower of this one.
func (t *DestinationHome) Receive(now Instant, from kv.Member, transfer kv.ID, m Message) []Effect {
	in := t.accepts[transfer]
	if r, is := m.(*Report); is {
		if in != nil && in.followers != nil && in.followers.onReport(now, from, r) {
			return in.review(now)
		}
		t.notices.onReport(now, from, r)
		return nil
	}
	if in == nil || from != in.Ticket.Home {
		return nil
	}
	switch m := m.(type) {
	case *Answer:
		return in.inSession(m.Session, func() []Effect { return in.onAnswer(now, m) })
	case *Refusal:
		return in.inSession(m.Session, func() []Effect { return in.onRefusal(now, m) })
	case *Progress:
		return in.inSession(m.Session, func() []Effect { return in.onProgress(now, m) })
	case *Pushed:
		return in.inSession(m.Session, func() []Effect { return in.onPushed(now, m) })
	case *Ended:
		return in.inSession(m.Session, func() []Effect { return in.onEnded(now, m) })
	}
	return nil
}

// Planned takes the plan that MakePlan asked for.
func (t *DestinationHome) Planned(now Instant, transfer kv.ID, session uint64, plan *reshard.Plan, err error) []Effect {
	in := t.accepts[transfer]
	if in == nil || in.session != session || in.state != acceptPlanning {
		return nil
	}
	return in.planned(now, plan, err)
}

// Gone tells that an agent is no more: another start of it has its name.
func (t *DestinationHome) Gone(now Instant, m kv.Member) []Effect {
	var effects []Effect
	for _, id := range inOrder(t.accepts) {
		effects = append(effects, t.accepts[id].onGone(now, m)...)
	}
	t.notices.onGone(m)
	return effects
}

// Wake is when Tick is wanted.
func (t *DestinationHome) Wake() Instant {
	next := t.notices.wake()
	for _, in := range t.accepts {
		next = min(next, in.wake())
	}
	return next
}

// Tick asks again, gives signs of life, and keeps deadlines.
func (t *DestinationHome) Tick(now Instant) []Effect {
	effects := t.notices.tick(now)
	for _, id := range inOrder(t.accepts) {
		effects = append(effects, t.accepts[id].tick(now)...)
	}
	return effects
}

package handoff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
)

// SourceOptions configures NewSourceHome.
type SourceOptions struct {
	Self   kv.Member
	Key    Key
	Timing Timing
	// MaxHeldFraction is how much of an engine's blocks offers may keep from
	// it; default 0.3. Beyond it an offer is declined, and decode recomputes.
	MaxHeldFraction float64
	// MaxOffers bounds offers and early asks; default 4096. MaxRemembered
	// bounds tickets that are used up and have not expired; default 65536.
	MaxOffers, MaxRemembered int
	// Stores is what the object caches among the engines may take up instead.
	Stores StoreLimits
}

// SourceHome speaks for the prefill engines whose home is this agent: it keeps the
// blocks that they offer, and has them opened to the decode engine that may take them.
type SourceHome struct {
	SourceOptions
	engines map[string]*Engine
	offers  map[kv.ID]*offer
	endings map[kv.ID]ending
	sweep   Instant // when to look for endings to forget
	units   heldUnits
	spent   []kv.ID // of endings, those of object caches, oldest first
	notices finalNotices
	session uint64
}

// ending is what is remembered of an offer that is over, until no ticket for it
// can be used any more.
type ending struct {
	problem Problem // none: it was taken
	until   Instant
	ofStore bool
}

// NewSourceHome has no engines yet.
func NewSourceHome(o SourceOptions) *SourceHome {
	o.Timing = o.Timing.WithDefaults()
	o.MaxHeldFraction = cmp.Or(o.MaxHeldFraction, 0.3)
	o.MaxOffers, o.MaxRemembered = cmp.Or(o.MaxOffers, 4096), cmp.Or(o.MaxRemembered, 1<<16)
	o.Stores = o.Stores.WithDefaults()
	return &SourceHome{
		SourceOptions: o, engines: make(map[string]*Engine), offers: make(map[kv.ID]*offer), endings: make(map[kv.ID]ending), sweep: Never,
		units: heldUnits{readers: make(map[heldUnit]int)},
	}
}

// Join makes an engine known. It must be valid.
func (h *SourceHome) Join(e *Engine) { h.engines[e.ID] = e }

// Leave takes an engine away and withdraws what it offers.
func (h *SourceHome) Leave(now Instant, engine string) []Effect {
	delete(h.engines, engine)
	var effects []Effect
	for _, id := range inOrder(h.offers) {
		if o := h.offers[id]; o.Engine == engine {
			effects = append(effects, h.Withdraw(now, id)...)
		}
	}
	return effects
}

// Len is how many offers and early asks there are.
func (h *SourceHome) Len() int { return len(h.offers) }

// Held is how many blocks of an engine its offers keep: those that an object cache is to
// take, or all others.
func (h *SourceHome) Held(engine string, toKeep bool) int {
	held := 0
	for _, o := range h.offers {
		if o.Engine == engine && o.ToKeep == toKeep && o.state != offerAwaited {
			held += o.blocks(&o.src)
		}
	}
	return held
}

// blocks is how many blocks the offer holds of its party's, of which each context rank has one
// for an entry of its table.
func (o *Offer) blocks(p *Party) int {
	side := &p.Engine.Side
	return p.blocks() - min(o.First/max(1, side.BlockTokens*side.Parallelism.CP), p.blocks())
}

// Offer is a prefill engine's: this request's cache may be taken.
type Offer struct {
	Transfer    kv.ID
	Engine      string
	Fingerprint Fingerprint
	Tokens      int
	// First is the first token that is held. An ask for what comes before it is
	// refused, and what the block table says of it is not looked at.
	First   int
	Holding reshard.Holding
	// Computed is what is by now; SourceHome.Computed tells of more.
	Computed Computed
	// Keep is how long the offer stands if no decode engine takes it.
	Keep Instant
	// ToKeep says that an object cache is to take it. Such offers have a bound of their
	// own, so that none of a request is declined for them.
	ToKeep bool
}

func (o *Offer) same(other *Offer) bool {
	return o.Transfer == other.Transfer && o.Engine == other.Engine && o.Fingerprint == other.Fingerprint && o.Tokens == other.Tokens &&
		o.First == other.First && o.Holding.DP == other.Holding.DP && slices.EqualFunc(o.Holding.Tables, other.Holding.Tables, slices.Equal)
}

// Issue makes a ticket, also for what will be offered only later.
func (h *SourceHome) Issue(now Instant, o Offer) []byte {
	return Ticket{Transfer: o.Transfer, Home: h.Self, Tokens: o.Tokens, Fingerprint: o.Fingerprint, Expires: now + o.Keep}.Seal(h.Key)
}

// Offer takes an offer, whose blocks are the source's until Freed, or declines
// it, which has effects too. Repeating it changes nothing.
func (h *SourceHome) Offer(now Instant, o Offer) (ticket []byte, effects []Effect, err error) {
	if over, is := h.endings[o.Transfer]; is {
		if over.problem.None() {
			return nil, nil, fmt.Errorf("%w: transfer %s is done", ErrUsed, o.Transfer)
		}
		return nil, nil, over.problem.Err()
	}
	standing := h.offers[o.Transfer]
	if standing != nil && standing.state != offerAwaited {
		if !standing.same(&o) {
			return nil, nil, fmt.Errorf("%w: transfer %s was offered before, otherwise", ErrContradiction, o.Transfer)
		}
		return standing.ticket, nil, nil
	}
	engine := h.engines[o.Engine]
	if engine == nil {
		return nil, nil, fmt.Errorf("%w: no engine %q here", ErrMember, o.Engine)
	}
	if err := h.admit(now, engine, &o); err != nil {
		if engine.IsStore() {
			return nil, nil, err // no peer has heard of it
		}
		// A destination that waits for it, or comes for it later, need not wait.
		return nil, h.endUnoffered(now, o.Transfer, ProblemOf(err), now+min(max(o.Keep, h.Timing.Lease), MaxKeep)), err
	}
	n := &offer{Offer: o, source: h, state: offerHeld, expires: now + o.Keep, layers: len(engine.Side.Geometry.Layers), past: make(map[kv.Member]pastSession)}
	n.lastTicket = n.expires
	n.src = Party{Engine: *engine, Holding: o.Holding}
	if engine.IsStore() {
		n.units, n.unitBytes, _ = unitsOf(engine, &o) // admit has seen them
		h.units.hold(n)
	}
	n.ticket = h.Issue(now, o)
	n.record = &Record{
		Transfer: o.Transfer, As: Source, Engine: o.Engine, OfStore: engine.IsStore(), ToKeep: o.ToKeep, Tokens: o.Tokens, SrcRanks: len(engine.Ranks),
		Direct: true, Stages: Times{Begun: now},
	}
	h.offers[o.Transfer] = n
	if standing != nil {
		effects = n.beginSession(now, standing.session.asking, standing.session.deadline)
	}
	return n.ticket, effects, nil
}

// Progress tells that the first layers of an offer are computed by now, for its first
// tokens; 0: for all of them.
func (h *SourceHome) Progress(now Instant, transfer kv.ID, layers, tokens int) []Effect {
	o := h.offers[transfer]
	if o == nil || o.state == offerAwaited {
		return nil
	}
	computed := o.Computed.And(layers, tokens, o.layers, o.Tokens)
	if computed == o.Computed {
		return nil
	}
	o.Computed = computed
	return o.tellComputed(now)
}

// Withdraw takes an offer back, also one that has not come yet. The blocks are
// the engine's again at Freed.
func (h *SourceHome) Withdraw(now Instant, transfer kv.ID) []Effect {
	o := h.offers[transfer]
	if o == nil || o.state == offerAwaited {
		if _, over := h.endings[transfer]; over {
			return nil
		}
		return h.endUnoffered(now, transfer, ProblemOf(ErrWithdrawn), now+h.Timing.Lease)
	}
	return o.close(now, ProblemOf(ErrWithdrawn), true)
}

// endUnoffered ends what was not offered yet.
func (h *SourceHome) endUnoffered(now Instant, transfer kv.ID, why Problem, until Instant) []Effect {
	var effects []Effect
	if o := h.offers[transfer]; o != nil {
		until = max(until, o.lastTicket)
		effects = h.refuse(o.session.asking, transfer, why.Err())
		delete(h.offers, transfer)
	}
	h.remember(now, transfer, why, until)
	return effects
}

// remember keeps how an offer ended until no ticket for it can be used, and for a
// lease at least.
func (h *SourceHome) remember(now Instant, transfer kv.ID, how Problem, until Instant) {
	until = max(until, now+h.Timing.Lease)
	how.Differences = nil // its text names them
	if _, is := h.endings[transfer]; !is && len(h.endings)-len(h.spent) < 2*h.MaxRemembered {
		h.endings[transfer] = ending{problem: how, until: until}
		h.sweep = min(h.sweep, now+h.Timing.Lease)
	}
}

// Receive takes a message from another agent, or from the follower of this one. What is
// not for a source it leaves alone.
func (h *SourceHome) Receive(now Instant, from kv.Member, transfer kv.ID, m Message) []Effect {
	switch m := m.(type) {
	case *Ask:
		return h.onAsk(now, asking{from, m}, transfer)
	case *End:
		return h.onEnd(now, from, transfer, m)
	case *Report:
		return h.onReport(now, from, transfer, m)
	case *Heartbeat:
		if o := h.offers[transfer]; o != nil && o.serves(from, m.Session) {
			return o.onBeat(now, m)
		}
		return h.tellNoSession(from, transfer, m.Session)
	case *Push:
		if o := h.offers[transfer]; o != nil && o.serves(from, m.Session) {
			return o.onPush(now, m)
		}
		return h.tellNoSession(from, transfer, m.Session)
	}
	return nil
}

// tellNoSession tells a destination whose session is not that of the offer that it is
// over.
func (h *SourceHome) tellNoSession(from kv.Member, transfer kv.ID, session uint64) []Effect {
	how := ProblemOf(ErrLapsed)
	if over, is := h.endings[transfer]; is {
		if how = over.problem; how.None() {
			return nil // the destination's End came before
		}
	}
	return []Effect{Send{from, transfer, &Ended{Session: session, Problem: how}}}
}

// check says whether a ticket gives the right to speak of a transfer.
func (h *SourceHome) check(sealed []byte, transfer kv.ID) (Ticket, error) {
	t, err := OpenTicket(sealed, h.Key)
	switch {
	case err != nil:
		return Ticket{}, err
	case t.Transfer != transfer:
		return Ticket{}, fmt.Errorf("%w: it is for transfer %s, not %s", ErrForged, t.Transfer, transfer)
	case t.Home != h.Self:
		return Ticket{}, fmt.Errorf("%w: for %v, this is %v", ErrElsewhere, t.Home, h.Self)
	}
	return t, nil
}

// asking is an ask and who asked.
type asking struct {
	from kv.Member
	ask  *Ask
}

func (h *SourceHome) refuse(to asking, transfer kv.ID, err error) []Effect {
	return []Effect{Send{to.from, transfer, &Refusal{Session: to.ask.Session, Problem: ProblemOf(err)}}}
}

func (h *SourceHome) onAsk(now Instant, a asking, transfer kv.ID) []Effect {
	ticket, err := h.check(a.ask.Ticket, transfer)
	if err != nil {
		return h.refuse(a, transfer, err)
	}
	o := h.offers[transfer]
	if o != nil && o.serves(a.from, a.ask.Session) {
		return o.onRepeatedAsk(now)
	}
	if err := h.eligible(now, a, &ticket); err != nil {
		return h.refuse(a, transfer, err)
	}
	switch {
	case o == nil:
		return h.await(now, a, &ticket)
	case o.state == offerAwaited:
		return o.onOtherAsk(now, a, &ticket)
	}
	o.lastTicket = max(o.lastTicket, ticket.end(now))
	return o.onAsk(now, a, &ticket)
}

// eligible says whether a ticket may still be used, and by this asker.
func (h *SourceHome) eligible(now Instant, a asking, t *Ticket) error {
	if over, is := h.endings[t.Transfer]; is {
		if over.problem.None() {
			return fmt.Errorf("%w: its cache was taken", ErrUsed)
		}
		return over.problem.Err()
	}
	switch {
	case now >= t.Expires:
		return fmt.Errorf("%w: %d ms ago", ErrExpired, (now-t.Expires)/Millisecond)
	case a.ask.Low > HighVersion || a.ask.High < LowVersion:
		return fmt.Errorf("%w: %d to %d are asked for, this build speaks %d to %d", ErrVersion, a.ask.Low, a.ask.High, LowVersion, HighVersion)
	case a.ask.RemainingMs == 0:
		return ErrDeadline
	}
	return nil
}

// await keeps an ask that came before its offer.
func (h *SourceHome) await(now Instant, a asking, t *Ticket) []Effect {
	if err := h.admitAsk(a, nil); err != nil {
		return h.refuse(a, t.Transfer, err)
	}
	o := &offer{Offer: Offer{Transfer: t.Transfer}, source: h, state: offerAwaited}
	h.offers[t.Transfer] = o
	o.await(now, a, t)
	return nil
}

func (h *SourceHome) onEnd(now Instant, from kv.Member, transfer kv.ID, m *End) []Effect {
	ended := []Effect{Send{from, transfer, &Ended{Session: m.Session, Problem: m.Problem}}}
	ticket, err := h.check(m.Ticket, transfer)
	if err != nil {
		return []Effect{Send{from, transfer, &Refusal{Session: m.Session, Problem: ProblemOf(err)}}}
	}
	o := h.offers[transfer]
	switch {
	case o == nil:
		if _, is := h.endings[transfer]; !is && m.Final && now < ticket.Expires {
			h.remember(now, transfer, m.Problem, ticket.end(now)) // it ends before it began
		}
		return ended
	case o.state == offerAwaited:
		if m.Final {
			return append(h.endUnoffered(now, transfer, m.Problem, ticket.end(now)), ended...)
		}
		if o.serves(from, m.Session) {
			delete(h.offers, transfer)
		}
		return ended
	}
	return o.onEnd(now, from, m, ended)
}

func (h *SourceHome) onReport(now Instant, from kv.Member, transfer kv.ID, r *Report) []Effect {
	if r.As != Source {
		return nil
	}
	if o := h.offers[transfer]; o != nil && o.session != nil && o.session.followers != nil && o.session.followers.onReport(now, from, r) {
		return o.review(now)
	}
	h.notices.onReport(now, from, r)
	return nil
}

// Planned takes the plan that MakePlan asked for.
func (h *SourceHome) Planned(now Instant, transfer kv.ID, session uint64, plan *reshard.Plan, err error) []Effect {
	o := h.offers[transfer]
	if o == nil || o.session == nil || o.session.number != session || o.state != offerPlanning {
		return nil
	}
	return o.planned(now, plan, err)
}

// Gone tells that an agent is no more: another start of it has its name.
func (h *SourceHome) Gone(now Instant, m kv.Member) []Effect {
	var effects []Effect
	for _, id := range inOrder(h.offers) {
		effects = append(effects, h.offers[id].onGone(now, m)...)
	}
	h.notices.onGone(m)
	return effects
}

// Wake is when Tick is wanted.
func (h *SourceHome) Wake() Instant {
	next := min(h.sweep, h.notices.wake())
	for _, o := range h.offers {
		next = min(next, o.wake())
	}
	return next
}

// Tick asks again, ends leases, and forgets.
func (h *SourceHome) Tick(now Instant) []Effect {
	effects := h.notices.tick(now)
	for _, id := range inOrder(h.offers) {
		effects = append(effects, h.offers[id].tick(now)...)
	}
	if now >= h.sweep {
		h.forgetSpent(now)
		maps.DeleteFunc(h.endings, func(_ kv.ID, e ending) bool { return now >= e.until && !e.ofStore })
		if h.sweep = now + h.Timing.Lease; len(h.endings) == 0 {
			h.sweep = Never
		}
	}
	return effects
}

// inOrder lists a map's ids in their order, so that a simulation repeats.
func inOrder[T any](m map[kv.ID]T) []kv.ID {
	return slices.SortedFunc(maps.Keys(m), kv.ID.Compare)
}

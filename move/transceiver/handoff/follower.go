package handoff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"meridian/kv"
)

// HomeRole is who gives orders: one start of a home, speaking for sources or for
// destinations.
type HomeRole struct {
	Home kv.Member
	As   Role
}

// SessionID names what a follower does for one session.
type SessionID struct {
	HomeRole
	Session uint64
}

func (s SessionID) compare(other SessionID) int {
	return cmp.Or(s.Home.Compare(other.Home), cmp.Compare(s.As, other.As), cmp.Compare(s.Session, other.Session))
}

// Follower is the part of an agent that works on the memory of ranks, as homes
// order.
type Follower struct {
	timing    Timing
	homes     map[string]string // engine → the name of its home
	sessions  map[SessionID]*followerSession
	past      map[HomeRole]*pastSessions
	pastHomes []HomeRole // those in past, the one known longest first
}

// NewFollower has no engines yet.
func NewFollower(p Timing) *Follower {
	return &Follower{timing: p.WithDefaults(), homes: make(map[string]string), sessions: make(map[SessionID]*followerSession), past: make(map[HomeRole]*pastSessions)}
}

// Join makes the ranks of an engine on this agent work for its home.
func (h *Follower) Join(engine, home string) { h.homes[engine] = home }

// Leave takes an engine away and ends what runs for it. It is quiet when Busy
// says so.
func (h *Follower) Leave(engine string) []Effect {
	delete(h.homes, engine)
	var effects []Effect
	for _, name := range slices.SortedFunc(maps.Keys(h.sessions), SessionID.compare) {
		if s := h.sessions[name]; s.first.Engine == engine && s.phase < Stopping {
			effects = append(effects, h.stop(s, ProblemOf(fmt.Errorf("%w: engine %q left this agent", ErrMember, engine)))...)
		}
	}
	return effects
}

// Busy reports whether something for an engine may touch memory here; with no
// name, for any.
func (h *Follower) Busy(engine string) bool {
	for _, s := range h.sessions {
		if s.phase != Stopped && (engine == "" || s.first.Engine == engine) {
			return true
		}
	}
	return false
}

// Len is how many sessions have not ended.
func (h *Follower) Len() int { return len(h.sessions) }

// pastSessions is what a follower remembers of a home's sessions that are over, so that a late
// order does not begin one again: the last ones each, and of those before only
// that they are.
type pastSessions struct {
	recent []uint64
	floor  uint64 // every session up to here that is not at work is over
}

// maxFollowerSessions bounds what homes elsewhere have this agent do at a time.
const maxFollowerSessions = 1 << 14

const (
	rememberedSessions = 1 << 10
	rememberedHomes    = 1 << 7
)

func (p *pastSessions) has(session uint64) bool {
	return session <= p.floor || slices.Contains(p.recent, session)
}

func (p *pastSessions) add(session uint64) {
	p.recent = append(p.recent, session)
	if len(p.recent) > rememberedSessions {
		p.floor = max(p.floor, p.recent[0])
		p.recent = p.recent[1:]
	}
}

// followerSession is one session's work here.
type followerSession struct {
	name     SessionID
	transfer kv.ID
	first    *Order // whose engine is the home's, and is that of all that follow
	order    *Order // the last
	phase    Phase
	flows    []*flowWork
	problem  Problem
	reports  uint64
	until    Instant // when the home has been silent for too long
}

// flowWork is one flow of a session.
type flowWork struct {
	FlowReport
	moved        Computed // what has
	moving       Computed // …and will have with the transfer that runs; nothing when none does
	failedInARow int      // attempts that failed
}

func (w *flowWork) running() bool { return w.moving != Computed{} }

// Receive takes an order.
func (h *Follower) Receive(now Instant, from kv.Member, transfer kv.ID, o *Order) []Effect {
	name := SessionID{HomeRole{from, o.As}, o.Session}
	s := h.sessions[name]
	if s == nil {
		if why := h.refusal(name, o); why != nil {
			closed := &Report{As: o.As, Session: o.Session, Number: o.Number, Phase: Stopped, Problem: ProblemOf(why)}
			return []Effect{Send{from, transfer, closed}}
		}
		s = &followerSession{name: name, transfer: transfer, phase: Preparing}
		h.sessions[name] = s
	} else if o.Number < s.order.Number {
		return h.report(s) // late: it has been overtaken
	}
	switch {
	case s.phase == Stopped:
		s.until = now + h.timing.FollowerLease // then it is forgotten, whichever its home is
	case o.LeaseMs > 0:
		s.until = after(now, o.LeaseMs)
	default:
		s.until = Never // the home is on this agent, and lives as long as it
	}
	if s.order != nil && o.Number == s.order.Number {
		return h.report(s)
	}
	if s.first == nil {
		s.first = o // refusal has checked it
	} else if err := s.first.precedes(o); err != nil {
		return h.stop(s, ProblemOf(err))
	}
	s.order = o
	return h.execute(s)
}

// refusal says why no session begins with an order.
func (h *Follower) refusal(name SessionID, o *Order) error {
	switch {
	case h.isPast(name):
		return ErrLapsed
	case o.Kind >= OrderStop:
		h.remember(name) // it never was, and will not be
		return ErrLapsed
	case len(h.sessions) >= maxFollowerSessions:
		return fmt.Errorf("%w: %d sessions run on this agent already", ErrDeclined, len(h.sessions))
	case h.homes[o.Engine] != name.Home.Name:
		return fmt.Errorf("%w: this agent has no ranks of an engine %q whose home is %s", ErrMember, o.Engine, name.Home.Name)
	}
	return o.check()
}

// execute begins a new order.
func (h *Follower) execute(s *followerSession) []Effect {
	if s.phase >= Stopping && s.order.Kind < OrderStop {
		return h.report(s) // the home has not heard yet that it is over
	}
	switch s.order.Kind {
	case OrderGrant:
		s.takeFlows()
		return []Effect{Grant{s.name, s.order}}
	case OrderMove:
		s.takeFlows()
		s.phase = Moving
		return h.startMoves(s)
	case OrderStop:
		return h.stop(s, Problem{})
	case OrderNotifyRanks:
		if s.phase != Stopped {
			return h.stop(s, Problem{})
		}
		passed := NotifyRanks{Engine: s.first.Engine, Transfer: s.transfer, As: s.order.As, Problem: s.order.Problem}
		effects := append(h.report(s), passed)
		h.forget(s)
		return effects
	}
	return nil
}

// takeFlows makes work of the order's flows, once; later orders bring grants along.
func (s *followerSession) takeFlows() {
	if s.flows == nil {
		for _, o := range s.order.Flows {
			s.flows = append(s.flows, &flowWork{FlowReport: FlowReport{FlowGrant: o}})
		}
	}
}

// find returns the work of a flow; most callers know at which place it is.
func (s *followerSession) find(f Flow, place int) *flowWork {
	if place < len(s.flows) && s.flows[place].Flow == f {
		return s.flows[place]
	}
	if i, found := slices.BinarySearchFunc(s.flows, f, func(w *flowWork, f Flow) int { return w.Compare(f) }); found {
		return s.flows[i]
	}
	return nil
}

// startMoves begins what can be begun. With everything moved, or something failed,
// the home is told.
func (h *Follower) startMoves(s *followerSession) []Effect {
	if slices.ContainsFunc(s.flows, func(w *flowWork) bool { return !w.Problem.None() }) {
		return h.report(s)
	}
	var effects []Effect
	for _, w := range s.flows {
		to := s.order.Computed
		if !w.running() && to != w.moved && to.covers(w.moved, s.order.Terms.layers()) {
			w.moving = to
			w.Attempts++
			effects = append(effects, Move{s.name, s.order, w.FlowGrant, w.moved, to})
		}
	}
	if slices.ContainsFunc(s.flows, (*flowWork).running) {
		return effects
	}
	s.phase = Moved
	return h.report(s)
}

// Granted takes the grants of an order, or says why there are none.
func (h *Follower) Granted(now Instant, name SessionID, flowGrants []FlowGrant, err error) []Effect {
	s := h.sessions[name]
	if s == nil || s.phase >= Stopping {
		return nil // Quiesce revokes them
	}
	if err != nil {
		return h.stop(s, ProblemOf(err))
	}
	for i, o := range flowGrants {
		if w := s.find(o.Flow, i); w != nil {
			w.Grant = o.Grant
		}
	}
	s.phase = Granted
	return h.report(s)
}

// Movement is how a transfer ended.
type Movement struct {
	Flow   Flow
	Bytes  uint64
	Micros uint64
	Fabric string
	// Err is nil when every byte is in place and verified. Again: the link
	// broke, and nothing says that it would again.
	Err   error
	Again bool
}

// Moved takes the end of a transfer. The session's own memory is quiet as far as
// this transfer goes.
func (h *Follower) Moved(now Instant, name SessionID, m Movement) []Effect {
	s := h.sessions[name]
	if s == nil {
		return nil
	}
	w := s.find(m.Flow, 0)
	if w == nil || !w.running() {
		return nil
	}
	moved := w.moving
	w.moving = Computed{}
	w.Micros += m.Micros
	w.Fabric = cmp.Or(m.Fabric, w.Fabric) // a part may hold nothing of this flow, and is moved by none
	switch {
	case s.phase >= Stopping:
		return nil
	case m.Err == nil:
		w.moved, w.Layers, w.failedInARow = moved, moved.plain().Layers, 0
		w.Bytes += m.Bytes
	case m.Again && w.failedInARow+1 < h.timing.Attempts:
		w.failedInARow++
		w.Failures++
	default:
		w.Failures++
		w.Problem = ProblemOf(fmt.Errorf("%w: %v, after %v: %w", ErrMove, w.Flow, w.moved, m.Err))
	}
	return h.startMoves(s)
}

// stop begins the end of a session.
func (h *Follower) stop(s *followerSession, why Problem) []Effect {
	if s.phase >= Stopping {
		return h.report(s)
	}
	s.problem, s.phase = why, Stopping
	return []Effect{Quiesce{s.name}}
}

// Quiesced: nothing of the session touches memory here any more.
func (h *Follower) Quiesced(now Instant, name SessionID) []Effect {
	s := h.sessions[name]
	if s == nil || s.phase != Stopping {
		return nil
	}
	s.phase = Stopped
	s.until = now + h.timing.FollowerLease // then it is forgotten
	if s.order.Kind == OrderNotifyRanks {
		return h.execute(s)
	}
	return h.report(s)
}

// Wake is when Tick is wanted.
func (h *Follower) Wake() Instant {
	next := Never
	for _, s := range h.sessions {
		if s.phase != Stopping {
			next = min(next, s.until)
		}
	}
	return next
}

// Tick ends what no home has asked for in a while.
func (h *Follower) Tick(now Instant) []Effect {
	var effects []Effect
	for _, name := range slices.SortedFunc(maps.Keys(h.sessions), SessionID.compare) {
		switch s := h.sessions[name]; {
		case now < s.until || s.phase == Stopping:
		case s.phase == Stopped:
			h.forget(s)
		default:
			effects = append(effects, h.stop(s, ProblemOf(fmt.Errorf("%w of %v", ErrLapsed, name.Home)))...)
		}
	}
	return effects
}

func (h *Follower) forget(s *followerSession) {
	delete(h.sessions, s.name)
	h.remember(s.name)
}

func (h *Follower) isPast(name SessionID) bool {
	return h.past[name.HomeRole] != nil && h.past[name.HomeRole].has(name.Session)
}

func (h *Follower) remember(name SessionID) {
	if h.isPast(name) {
		return
	}
	if h.past[name.HomeRole] == nil {
		h.past[name.HomeRole] = &pastSessions{}
		if h.pastHomes = append(h.pastHomes, name.HomeRole); len(h.pastHomes) > rememberedHomes {
			delete(h.past, h.pastHomes[0])
			h.pastHomes = h.pastHomes[1:]
		}
	}
	h.past[name.HomeRole].add(name.Session)
}

// report tells the home how the session stands.
func (h *Follower) report(s *followerSession) []Effect {
	s.reports++
	r := &Report{As: s.name.As, Session: s.name.Session, Number: s.order.Number, Serial: s.reports, Phase: s.phase, Problem: s.problem}
	for _, w := range s.flows {
		r.Flows = append(r.Flows, w.FlowReport)
	}
	return []Effect{Send{s.name.Home, s.transfer, r}}
}

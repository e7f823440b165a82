package handoff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"meridian/internal/mutant"
	"meridian/kv"
)

// Post is who gives orders: one start of a home, speaking for sources or for
// destinations.
type Post struct {
	Home Member
	As   Role
}

// Stint names what a hand does for one session.
type Stint struct {
	Post
	Session uint64
}

func (s Stint) compare(other Stint) int {
	return cmp.Or(s.Home.Compare(other.Home), cmp.Compare(s.As, other.As), cmp.Compare(s.Session, other.Session))
}

// Hand is the part of an agent that works on the memory of ranks, as homes
// order.
type Hand struct {
	pace   Pace
	homes  map[string]string // engine → the name of its home
	stints map[Stint]*stint
	past   map[Post]*past
	posts  []Post // those in past, the one known longest first
}

// NewHand has no engines yet.
func NewHand(p Pace) *Hand {
	return &Hand{pace: p.WithDefaults(), homes: make(map[string]string), stints: make(map[Stint]*stint), past: make(map[Post]*past)}
}

// Join makes the ranks of an engine on this agent work for its home.
func (h *Hand) Join(engine, home string) { h.homes[engine] = home }

// Leave takes an engine away and ends what runs for it. It is quiet when Busy
// says so.
func (h *Hand) Leave(engine string) []Effect {
	delete(h.homes, engine)
	var effects []Effect
	for _, name := range slices.SortedFunc(maps.Keys(h.stints), Stint.compare) {
		if s := h.stints[name]; s.order.Engine == engine && s.phase < Closing {
			effects = append(effects, h.close(s, Trouble(fmt.Errorf("%w: engine %q left this agent", ErrMember, engine)))...)
		}
	}
	return effects
}

// Busy reports whether something for an engine may touch memory here; with no
// name, for any.
func (h *Hand) Busy(engine string) bool {
	for _, s := range h.stints {
		if s.phase != Closed && (engine == "" || s.order.Engine == engine) {
			return true
		}
	}
	return false
}

// Len is how many stints have not ended.
func (h *Hand) Len() int { return len(h.stints) }

// past is what a hand remembers of a post's stints that are over, so that a late
// order does not begin one again: the last ones each, and of those before only
// that they are.
type past struct {
	recent []uint64
	floor  uint64 // every session up to here that is not at work is over
}

const (
	rememberedStints = 1 << 10
	rememberedPosts  = 1 << 7
)

func (p *past) has(session uint64) bool {
	return session <= p.floor || slices.Contains(p.recent, session)
}

func (p *past) add(session uint64) {
	p.recent = append(p.recent, session)
	if len(p.recent) > rememberedStints {
		p.floor = max(p.floor, p.recent[0])
		p.recent = p.recent[1:]
	}
}

// stint is one session's work here.
type stint struct {
	name     Stint
	transfer kv.ID
	order    *Order
	phase    Phase
	flows    []*work
	problem  Problem
	reports  uint64
	until    Instant // when the home has been silent for too long
}

// work is one flow of a stint.
type work struct {
	FlowReport
	end    int // the first layer after those of the transfer that runs; 0 when none does
	inARow int // attempts that failed
}

func (w *work) running() bool { return w.end > 0 }

// Hear takes an order.
func (h *Hand) Hear(now Instant, from Member, transfer kv.ID, o *Order) []Effect {
	name := Stint{Post{from, o.As}, o.Session}
	s := h.stints[name]
	if s == nil {
		if why := h.refusal(name, o); why != nil {
			closed := &Report{As: o.As, Session: o.Session, Number: o.Number, Phase: Closed, Problem: Trouble(why)}
			return []Effect{Send{from, transfer, closed}}
		}
		s = &stint{name: name, transfer: transfer, phase: AtWork}
		h.stints[name] = s
	} else if o.Number < s.order.Number {
		return h.report(s) // late: it has been overtaken
	}
	s.until = Never
	if o.LeaseMs > 0 {
		s.until = now.after(o.LeaseMs)
	}
	if s.order != nil && o.Number == s.order.Number {
		return h.report(s)
	}
	s.order = o
	if err := o.check(); err != nil {
		return h.close(s, Trouble(err))
	}
	return h.obey(s)
}

// refusal says why no stint begins with an order.
func (h *Hand) refusal(name Stint, o *Order) error {
	switch {
	case h.isPast(name) && !mutant.Is(mutant.LateOrderObeyed):
		return ErrLapsed
	case o.Kind >= CloseUp:
		h.remember(name) // it never was, and will not be
		return ErrLapsed
	case h.homes[o.Engine] != name.Home.Name:
		return fmt.Errorf("%w: this agent has no ranks of an engine %q whose home is %s", ErrMember, o.Engine, name.Home.Name)
	}
	return o.check()
}

// obey begins a new order.
func (h *Hand) obey(s *stint) []Effect {
	if s.phase >= Closing && s.order.Kind < CloseUp {
		return h.report(s) // the home has not heard yet that it is over
	}
	switch s.order.Kind {
	case OpenUp:
		s.take()
		return []Effect{Grant{s.name, s.order}}
	case MoveOn:
		s.take()
		s.phase = Moving
		return h.moveOn(s)
	case CloseUp:
		return h.close(s, Problem{})
	case PassOn:
		if s.phase != Closed {
			return h.close(s, Problem{})
		}
		passed := PassTo{Engine: s.order.Engine, Transfer: s.transfer, As: s.order.As, Problem: s.order.Problem}
		effects := append(h.report(s), passed)
		h.forget(s)
		return effects
	}
	return nil
}

// take makes work of the order's flows, once; later orders bring grants along.
func (s *stint) take() {
	if s.flows == nil {
		for _, o := range s.order.Flows {
			s.flows = append(s.flows, &work{FlowReport: FlowReport{Opening: o}})
		}
	}
}

// moveOn begins what can be begun. With everything moved, or something failed,
// the home is told.
func (h *Hand) moveOn(s *stint) []Effect {
	if slices.ContainsFunc(s.flows, func(w *work) bool { return !w.Problem.None() }) {
		return h.report(s)
	}
	var effects []Effect
	for _, w := range s.flows {
		if !w.running() && w.Layers < s.order.Layers {
			w.end = s.order.Layers
			w.Attempts++
			effects = append(effects, Move{s.name, s.order, w.Opening, w.Layers, w.end})
		}
	}
	if slices.ContainsFunc(s.flows, (*work).running) {
		return effects
	}
	s.phase = Moved
	return h.report(s)
}

// Granted takes the grants of an order, or says why there are none.
func (h *Hand) Granted(now Instant, name Stint, openings []Opening, err error) []Effect {
	s := h.stints[name]
	if s == nil || s.phase >= Closing {
		return nil // Quiet revokes them
	}
	if err != nil {
		return h.close(s, Trouble(err))
	}
	for _, o := range openings {
		for _, w := range s.flows {
			if w.Flow == o.Flow {
				w.Grant = o.Grant
			}
		}
	}
	s.phase = Open
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

// Moved takes the end of a transfer. The stint's own memory is quiet as far as
// this transfer goes.
func (h *Hand) Moved(now Instant, name Stint, m Movement) []Effect {
	s := h.stints[name]
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.flows, func(w *work) bool { return w.Flow == m.Flow })
	if i < 0 || !s.flows[i].running() {
		return nil
	}
	w := s.flows[i]
	end := w.end
	w.end = 0
	w.Micros += m.Micros
	w.Fabric = m.Fabric
	switch {
	case s.phase >= Closing:
		return nil
	case m.Err == nil || mutant.Is(mutant.FailureForgotten):
		w.Layers, w.inARow = end, 0
		w.Bytes += m.Bytes
	case m.Again && w.inARow+1 < h.pace.Attempts:
		w.inARow++
		w.Failures++
	default:
		w.Failures++
		w.Problem = Trouble(fmt.Errorf("%w: %v, layers %d–%d: %w", ErrMove, w.Flow, w.Layers, end-1, m.Err))
	}
	return h.moveOn(s)
}

// close begins the end of a stint.
func (h *Hand) close(s *stint, why Problem) []Effect {
	if s.phase >= Closing {
		return h.report(s)
	}
	s.problem, s.phase = why, Closing
	return []Effect{Quiet{s.name}}
}

// Quieted: nothing of the stint touches memory here any more.
func (h *Hand) Quieted(now Instant, name Stint) []Effect {
	s := h.stints[name]
	if s == nil || s.phase != Closing {
		return nil
	}
	s.phase = Closed
	s.until = now + h.pace.HandLease // then it is forgotten
	if s.order.Kind == PassOn {
		return h.obey(s)
	}
	return h.report(s)
}

// Wake is when Tick is wanted.
func (h *Hand) Wake() Instant {
	next := Never
	for _, s := range h.stints {
		if s.phase != Closing {
			next = min(next, s.until)
		}
	}
	return next
}

// Tick ends what nobody has asked for in a while.
func (h *Hand) Tick(now Instant) []Effect {
	var effects []Effect
	for _, name := range slices.SortedFunc(maps.Keys(h.stints), Stint.compare) {
		switch s := h.stints[name]; {
		case now < s.until || s.phase == Closing:
		case s.phase == Closed:
			h.forget(s)
		default:
			effects = append(effects, h.close(s, Trouble(fmt.Errorf("%w of %v", ErrLapsed, name.Home)))...)
		}
	}
	return effects
}

func (h *Hand) forget(s *stint) {
	delete(h.stints, s.name)
	h.remember(s.name)
}

func (h *Hand) isPast(name Stint) bool {
	return h.past[name.Post] != nil && h.past[name.Post].has(name.Session)
}

func (h *Hand) remember(name Stint) {
	if h.isPast(name) {
		return
	}
	if h.past[name.Post] == nil {
		h.past[name.Post] = &past{}
		if h.posts = append(h.posts, name.Post); len(h.posts) > rememberedPosts {
			delete(h.past, h.posts[0])
			h.posts = h.posts[1:]
		}
	}
	h.past[name.Post].add(name.Session)
}

// report tells the home how the stint stands.
func (h *Hand) report(s *stint) []Effect {
	s.reports++
	r := &Report{As: s.name.As, Session: s.name.Session, Number: s.order.Number, Serial: s.reports, Phase: s.phase, Problem: s.problem}
	for _, w := range s.flows {
		r.Flows = append(r.Flows, w.FlowReport)
	}
	return []Effect{Send{s.name.Home, s.transfer, r}}
}

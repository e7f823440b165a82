package handoff

import (
	"fmt"
	"slices"

	"meridian/internal/fields"
	"meridian/kv"
)

// Role is which side of a hand-off one is on.
type Role uint8

// The roles.
const (
	Source Role = iota + 1
	Destination
)

func (r Role) String() string {
	switch r {
	case Source:
		return "source"
	case Destination:
		return "destination"
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// MarshalText writes r as String does.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *Role) UnmarshalText(text []byte) error {
	for _, role := range []Role{Source, Destination} {
		if role.String() == string(text) {
			*r = role
			return nil
		}
	}
	return fmt.Errorf("handoff: unknown role %q", text)
}

// OrderKind is what a home wants of a follower.
type OrderKind uint8

// The orders, in the order in which a session gives them.
const (
	// OrderGrant: grant the flows to the agents at their other ends, for reading
	// at the source, for writing at the destination.
	OrderGrant OrderKind = iota + 1
	// OrderMove: move the flows as far as Computed says, by writing at the source,
	// by reading at the destination.
	OrderMove
	// OrderStop: stop everything, take every grant back, and say when nothing of
	// the session can touch memory any more.
	OrderStop
	// OrderNotifyRanks: tell the ranks how it ended, and forget the session.
	OrderNotifyRanks
)

var orderNames = [...]string{OrderGrant: "grant", OrderMove: "move", OrderStop: "stop", OrderNotifyRanks: "notify ranks"}

func (k OrderKind) String() string {
	if int(k) < len(orderNames) && k > 0 {
		return orderNames[k]
	}
	return fmt.Sprintf("order(%d)", uint8(k))
}

// Order is what a home wants a follower to have done, in full: an order replaces the
// one before, and repeating it changes nothing.
type Order struct {
	// Session numbers what one start of a home has its followers do; Number the
	// orders of a session.
	Session, Number uint64
	Kind            OrderKind
	As              Role
	// Engine is the one whose ranks the follower is to work on.
	Engine string
	// Terms, Digest and Flows go with OrderGrant and OrderMove.
	Terms  *Terms
	Digest kv.Hash
	Flows  []FlowGrant
	// Computed says how far OrderMove may go.
	Computed Computed
	// LeaseMs is how long the follower goes on without hearing of its home again;
	// 0 is for the follower on the home's own agent, which dies with it.
	LeaseMs uint64
	// RemainingMs is how long the hand-off may take: grants hold no longer.
	RemainingMs uint64
	// Problem goes with OrderNotifyRanks; none is success.
	Problem Problem
}

// Other is the rank at the other end of a flow.
func (m *Order) Other(f Flow) *Rank {
	if m.As == Source {
		return &m.Terms.Dst.Engine.Ranks[f.Dst]
	}
	return &m.Terms.Src.Engine.Ranks[f.Src]
}

// check says what cannot be about an order. A home is trusted to mean well, not
// to make no mistakes.
func (m *Order) check() error {
	if m.Terms == nil {
		return nil
	}
	src, dst := &m.Terms.Src.Engine, &m.Terms.Dst.Engine
	if m.Terms.plan == nil { // else the home is of this process, and has looked
		if err := dst.Validate(); err != nil {
			return err
		}
		if err := fits(src, dst, src); err != nil {
			return err
		}
	}
	for i, f := range m.Flows {
		switch {
		case f.Src >= len(src.Ranks) || f.Dst >= len(dst.Ranks):
			return fmt.Errorf("%w: %v, of %d and %d ranks", ErrTerms, f.Flow, len(src.Ranks), len(dst.Ranks))
		case i > 0 && m.Flows[i-1].Compare(f.Flow) >= 0:
			return fmt.Errorf("%w: %v is listed after %v", ErrTerms, f.Flow, m.Flows[i-1].Flow)
		}
	}
	if normal, possible := m.Computed.normal(m.Terms.layers(), m.Terms.ContextTokens); !possible || normal != m.Computed {
		return fmt.Errorf("%w: %v, of %d layers and %d tokens", ErrTerms, m.Computed, m.Terms.layers(), m.Terms.ContextTokens)
	}
	return nil
}

// precedes says why another order cannot follow the first of its session: what
// the follower has checked of that one, and works on, is not the home's to change.
func (m *Order) precedes(next *Order) error {
	if next.Kind >= OrderStop {
		return nil // it works on nothing
	}
	sameFlow := func(a, b FlowGrant) bool { return a.Flow == b.Flow }
	if next.Engine != m.Engine || next.Digest != m.Digest || !m.Terms.sameRanks(next.Terms) || !slices.EqualFunc(next.Flows, m.Flows, sameFlow) {
		return fmt.Errorf("%w: order %d of session %d is not about what the first was", ErrContradiction, next.Number, next.Session)
	}
	return next.check()
}

func (m *Order) append(w *fields.Writer) {
	w.Uint(m.Session)
	w.Uint(m.Number)
	w.U8(uint8(m.Kind))
	w.U8(uint8(m.As))
	w.Text(m.Engine)
	w.Flag(m.Terms != nil)
	if m.Terms != nil {
		m.Terms.append(w)
		w.Hash(m.Digest)
		appendGrants(w, m.Flows)
		m.Computed.append(w)
	}
	w.Uint(m.LeaseMs)
	w.Uint(m.RemainingMs)
	m.Problem.append(w)
}

func (m *Order) parse(r *fields.Reader) {
	m.Session, m.Number = r.Uint(), r.Uint()
	m.Kind, m.As, m.Engine = OrderKind(r.U8()), Role(r.U8()), r.Text(maxName)
	if r.Flag() {
		m.Terms = &Terms{}
		m.Terms.parse(r)
		m.Digest, m.Flows = r.Hash(), parseGrants(r)
		m.Computed.parse(r)
	}
	m.LeaseMs, m.RemainingMs = r.Uint(), r.Uint()
	m.Problem.parse(r)
	needsTerms := m.Kind == OrderGrant || m.Kind == OrderMove
	if m.Kind < OrderGrant || m.Kind > OrderNotifyRanks || m.As < Source || m.As > Destination || needsTerms && m.Terms == nil {
		r.Fail()
	}
}

// Phase is how far a follower has come with a session.
type Phase uint8

// The phases.
const (
	Preparing Phase = iota + 1
	Granted
	Moving
	Moved
	Stopping
	Stopped
)

// Report is a follower's answer to an order, and its news when something changes.
type Report struct {
	As              Role
	Session, Number uint64
	// Serial numbers a session's reports, so that an older one is seen to be.
	Serial uint64
	Phase  Phase
	Flows  []FlowReport
	// Problem is what concerns all flows: an order that cannot be carried out,
	// or a home that fell silent.
	Problem Problem
}

func (m *Report) append(w *fields.Writer) {
	w.U8(uint8(m.As))
	w.Uint(m.Session)
	w.Uint(m.Number)
	w.Uint(m.Serial)
	w.U8(uint8(m.Phase))
	appendReports(w, m.Flows)
	m.Problem.append(w)
}

func (m *Report) parse(r *fields.Reader) {
	m.As, m.Session, m.Number, m.Serial = Role(r.U8()), r.Uint(), r.Uint(), r.Uint()
	m.Phase, m.Flows = Phase(r.U8()), parseReports(r)
	m.Problem.parse(r)
	if m.As < Source || m.As > Destination || m.Phase < Preparing || m.Phase > Stopped {
		r.Fail()
	}
}

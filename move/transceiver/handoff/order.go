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

func (m *Order) each(c fields.Codec) {
	c.Uint(&m.Session, &m.Number)
	fields.Enum(c, &m.Kind)
	fields.Enum(c, &m.As)
	c.Text(maxName, &m.Engine)
	hasTerms := m.Terms != nil
	if c.Flag(&hasTerms); hasTerms {
		if c.Reads() {
			m.Terms = &Terms{}
		}
		m.Terms.each(c)
		c.Hash(&m.Digest)
		eachGrant(c, &m.Flows)
		m.Computed.each(c)
	}
	c.Uint(&m.LeaseMs, &m.RemainingMs)
	m.Problem.each(c)
	needsTerms := m.Kind == OrderGrant || m.Kind == OrderMove
	c.Demand(m.Kind >= OrderGrant && m.Kind <= OrderNotifyRanks && m.As >= Source && m.As <= Destination && (m.Terms != nil || !needsTerms))
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

func (m *Report) each(c fields.Codec) {
	fields.Enum(c, &m.As)
	c.Uint(&m.Session, &m.Number, &m.Serial)
	fields.Enum(c, &m.Phase)
	eachReport(c, &m.Flows)
	m.Problem.each(c)
	c.Demand(m.As >= Source && m.As <= Destination && m.Phase >= Preparing && m.Phase <= Stopped)
}

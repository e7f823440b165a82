package handoff

import "meridian/kv"

// Effect is one thing that the shell around a machine must do, in order.
type Effect interface{ effect() }

// Send has a message delivered to an agent, which may be one's own.
type Send struct {
	To       kv.Member
	Transfer kv.ID
	Message  Message
}

// MakePlan asks for the plan of a hand-off; Planned takes it, the SourceHome's at the
// source, the DestinationHome's at the destination. It is an effect because it may take
// milliseconds.
type MakePlan struct {
	As      Role
	Session uint64
	Terms   *Terms
}

// Grant asks for grants on the flows of an order; Follower.Granted takes them. They
// are to hold for Order.RemainingMs.
type Grant struct {
	Session SessionID
	Order   *Order
}

// Move asks for the bytes of a flow to be moved that exist by To and did not by From,
// which Flows returns; Follower.Moved takes the end.
type Move struct {
	Session   SessionID
	Order     *Order
	FlowGrant FlowGrant
	From, To  Computed
}

// Quiesce demands that nothing of a session touches memory here any more: what moves
// is cancelled, what is granted is revoked, and what is asked for later is not
// begun. Follower.Quiesced is called when that is certain. It is never given up.
type Quiesce struct{ Session SessionID }

// NotifyRanks tells ranks of an engine on this agent how a hand-off ended.
type NotifyRanks struct {
	Engine   string
	Transfer kv.ID
	As       Role
	Problem  Problem
}

// Tell tells an engine's home what happened.
type TellEngine struct{ Event Event }

// Keep is the record of a hand-off that is over.
type KeepRecord struct{ Record *Record }

func (Send) effect()        {}
func (MakePlan) effect()    {}
func (Grant) effect()       {}
func (Move) effect()        {}
func (Quiesce) effect()     {}
func (NotifyRanks) effect() {}
func (TellEngine) effect()  {}
func (KeepRecord) effect()  {}

// EventKind is what an engine is told.
type EventKind uint8

// What an engine is told of a hand-off. Of an accept: Ready once, or Failed once
// and then Freed once. Of an offer: Freed once. The others may come before that.
const (
	// Ready: every byte is where the decode engine wants it.
	Ready EventKind = iota + 1
	// Failed: it will not come. Its blocks are still not the engine's.
	Failed
	// Freed: nothing of the hand-off can touch the blocks any more. With an
	// offer, Problem says whether it was taken.
	Freed
	// Dropped: the decode side of an offer failed or fell silent; another may
	// come.
	Dropped
	// Stuck: Freed waits for a follower that cannot be reached. It ends when the
	// follower answers, or when Gone says that its agent is no more.
	Stuck
)

var eventNames = [...]string{Ready: "ready", Failed: "failed", Freed: "freed", Dropped: "dropped", Stuck: "stuck"}

func (k EventKind) String() string { return eventNames[k] }

// Event is what an engine's home is told.
type Event struct {
	Kind     EventKind
	As       Role
	Engine   string
	Transfer kv.ID
	Problem  Problem
	// Member is the one that cannot be reached, with Stuck.
	Member kv.Member
	// Taken is what the destination had of an offer that is Freed without a problem.
	Taken kv.TokenRange
}

package lifecycle

// MoveReason is why a request leaves an engine that is well.
type MoveReason uint8

const (
	ByDrain    MoveReason = iota // the engine is about to go
	ByThought                    // its thought has ended, and another engine has less to do
	ByOperator                   // an operator asked the gateway for it
	ByBalance                    // its engine has much more to do than another
	ByRoom                       // a prefill engine generates for it, and a decode engine has room now
)

// Why requests leave, and what came of it, by number.
var (
	MoveReasons = [...]string{ByDrain: "drain", ByThought: "thought", ByOperator: "operator", ByBalance: "balance", ByRoom: "room"}
	MoveEnds    = [...]string{"moved", "recomputed", "stayed", "returned", "lost"}
)

// MoveEnd is what became of a request that was asked to leave.
type MoveEnd uint8

const (
	MoveMoved MoveEnd = iota
	MoveRecomputed
	MoveStayed
	MoveReturned
	MoveLost
)

// Leaves: any other engine is better than the one where it is.
func (r MoveReason) Leaves() bool { return r != ByThought && r != ByBalance }

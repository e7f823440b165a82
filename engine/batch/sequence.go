package batch

import (
	"meridian/kv"
)

// Sequence is one text that is being computed: a prompt, and what has been
// answered so far. The scheduler owns its unexported fields while it has it.
type Sequence struct {
	// Owner is the caller's.
	Owner any
	// Tokens are known; those that are not computed yet come at the end.
	Tokens []uint32
	// Prompt is how many of them are the prompt.
	Prompt int
	// Root is the parent of the first block's key: what the cache is of.
	Root kv.Hash
	// Fetch is of how many tokens, from the first on, the cache is to come from
	// elsewhere; 0: of none.
	Fetch int
	// FetchFrom is where what can be fetched begins: what is before it was here when it
	// was looked for. If it is not any more, nothing is fetched.
	FetchFrom int
	// Ask: a plan that would let it in, with more to compute than is worth to be fetched,
	// says so once instead: the caller may know who has it.
	Ask bool
	// Leader, if any, is a sequence with the same prompt that goes first, so
	// that this one finds its blocks.
	Leader *Sequence

	state    State
	arrival  uint64
	blocks   []uint32
	computed int
	keys     []kv.BlockKey // of full blocks of Tokens
	named    int           // blocks that the pool knows by their keys
	planned  int           // tokens in the step that is planned
	prompted bool          // the prompt has been computed once
	allotted int           // tokens of a step that an order lets it have at most; below 1: any number
	rank     int           // its place among those that an order has run, from 1 on; 0: it is not named
	pauses   PauseReason   // why it is left out; 0: it is not
	fork     bool          // it is to be thrown away, and no sequence is to find its blocks
}

// State is where a sequence stands.
//
//	(none) ──Add──► Waiting ───────────admitted───────► Running ──Remove──► (none)
//	                 ▲  ▲ └─admitted─► Fetching ─┐         │
//	                 │  └─── Fetched, Unfetched ─┘         │
//	                 └──────────── preempted ──────────────┘
type State uint8

// The states.
const (
	Absent State = iota
	Waiting
	Fetching
	Running
)

// State is where q stands.
func (q *Sequence) State() State { return q.state }

// Computed is how many tokens are in the cache.
func (q *Sequence) Computed() int { return q.computed }

// Blocks is the block table. It belongs to the scheduler and is good until its
// next call.
func (q *Sequence) Blocks() []uint32 { return q.blocks }

// Paused is why q is left out; 0: it is not.
func (q *Sequence) Paused() PauseReason { return q.pauses }

// missing is how many tokens are to be computed.
func (q *Sequence) missing() int { return len(q.Tokens) - q.computed }

// wanted is how many tokens it may have in a step.
func (q *Sequence) wanted() int {
	if q.allotted > 0 {
		return min(q.allotted, q.missing())
	}
	return q.missing()
}

// needsLeader reports whether it is too early for q.
func (q *Sequence) needsLeader() bool {
	return q.Leader != nil && q.Leader.state != Absent && !q.Leader.prompted
}

// key returns the key of a full block of q.
func (q *Sequence) key(block, blockTokens int) kv.BlockKey {
	for i := len(q.keys); i <= block; i++ {
		parent := q.Root
		if i > 0 {
			parent = q.keys[i-1]
		}
		q.keys = append(q.keys, kv.NextBlockKey(parent, q.Tokens[i*blockTokens:(i+1)*blockTokens]))
	}
	return q.keys[block]
}

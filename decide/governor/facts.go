package governor

import (
	"meridian/decide/block"
	"meridian/decide/entropy"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/kv"
)

// Facts is what happened in an engine since the last step. Slices are read and
// not kept.
type Facts struct {
	Now policy.Instant
	// Took is what the last step took, and Computed of how many tokens of how many
	// sequences; 0 if there was none.
	Took                policy.Instant
	Computed, Sequences int32
	// FreeBlocks may be taken at once, cached ones that no sequence uses among them.
	FreeBlocks int32
	// FabricDown: nothing can be copied out or brought back.
	FabricDown bool

	Arrivals []Arrival
	Held     []Hold
	Evicted  []block.ID // the engine has used these for something else
	Commits  []Commit
	Forks    []Fork
	Ended    []phase.Sequence
	Stopped  []Stopped
	Copied   []Copied
	Recalled []Recalled
}

// Arrival is a sequence that the engine has admitted to its queue.
type Arrival struct {
	Sequence phase.Sequence
	At       policy.Instant
	Tenant   int32
	// Prompt is its ids, or their end, and PromptTokens how many there are, without
	// what a resumed one has generated.
	Prompt       phase.Prompt
	PromptTokens int32
	// MaxThinkTokens is what the request asked for; 0 means that it did not.
	MaxThinkTokens int32
	// Cached of its first tokens others have computed, and Shared are their blocks.
	Cached, Shared int32
	// Resumed is what it carries, if it began elsewhere.
	Resumed *ResumeState
}

// Hold is a block that a sequence has got, in the order of its context.
type Hold struct {
	Sequence phase.Sequence
	Block    block.ID
}

// Commit is what a step did for one sequence.
type Commit struct {
	Sequence phase.Sequence
	// Computed tokens have their KV now that had none before.
	Computed int32
	// Tokens were found and are committed; rejected drafts are not among them.
	Tokens []uint32
	// Entropies are those of Tokens in nats; none where the engine did not measure. A NaN is
	// a token without one.
	Entropies []float64
	// Given replaces Tokens where the phase is known without them.
	Given *KnownPhase
}

// KnownPhase is a phase that is known, as in replay: what Tokens would have led to.
type KnownPhase struct {
	Phase kv.Phase
	// Found tokens were committed, and of all so far Think and Output are these.
	Found, Think, Output int32
	// Heard is what an estimator said of them.
	Heard entropy.Reason
}

// Fork is the entropy after a forced end of the thought, which a decision asked
// for.
type Fork struct {
	Sequence phase.Sequence
	Nats     float64
}

// Stopped says that no step touches the blocks of a sequence any more, because a
// decision preempted it, or because the engine did of its own accord.
type Stopped struct {
	Sequence phase.Sequence
	// Lost: the blocks are gone and it is to be computed anew. Else they wait to be
	// copied out.
	Lost bool
}

// Copied is the end of a copy that a decision asked for.
type Copied struct {
	Sequence phase.Sequence
	Blocks   []block.ID
	Took     policy.Instant
	Whole    bool
}

// Recalled says that the blocks of a sequence are back, in the order of its
// context, or that they cannot be had.
type Recalled struct {
	Sequence phase.Sequence
	Blocks   []block.ID
	Took     policy.Instant
	Whole    bool
}

// ResumeState goes along when a sequence is resumed elsewhere: its phase, and what its
// thought may still take.
type ResumeState struct {
	Phase phase.State
	// Limit is the longest that its thought may be, Forced why it was ended.
	Limit  int32
	Forced ForceReason
}

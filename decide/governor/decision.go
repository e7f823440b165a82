package governor

import (
	"meridian/decide/block"
	"meridian/decide/phase"
	"meridian/decide/policy"
)

// Decision is what an engine is to do. The engine carries it out in this order:
// evictions, preemptions, recalls, then the order; copies go on meanwhile. It
// belongs to the governor and holds until the next Step.
type Decision struct {
	// Order is who runs in the next step, and for how many tokens. Of those, Thinking
	// think and Answering answer; the others compute their prompts.
	Order               []Allotment
	Thinking, Answering int32
	// Pause leaves these out although they could run; Resume has them back.
	Pause, Resume []phase.Sequence
	// Force ends thoughts.
	Force []Force
	// Fork asks for the entropy after a forced end marker.
	Fork []phase.Sequence
	// CopyOut asks for copies; Evict forgets the contents of blocks whose copy
	// exists: sequences that are away lose them, the engine's cache does, too.
	CopyOut []CopyOut
	Evict   []block.ID
	// Recall asks for the blocks of these back.
	Recall []phase.Sequence
	// Preempt takes blocks away.
	Preempt []Preempt
	// Reaped are forgotten: the engine has not spoken of them for a minute.
	Reaped []phase.Sequence
	// Steps is for how many steps the order holds if nothing happens but that those
	// in it decode, and Until, unless it is 0, when it ends in any case.
	Steps int32
	Until policy.Instant
	// Contradictions are facts of this step that were left out; above MaxContradictions
	// all that came after them were, too.
	Contradictions int
}

// Allotment is work: so many tokens of a sequence.
type Allotment struct {
	Sequence phase.Sequence
	Tokens   int32
}

// Force puts Tokens into a sequence's stream, which end its thought.
type Force struct {
	Sequence phase.Sequence
	Reason   ForceReason
	// Tokens belong to the model and are not to be changed. None means that no
	// marker of this model has ids: the engine can only be told.
	Tokens []uint32
}

// CopyOut copies blocks of a sequence. They stay.
type CopyOut struct {
	Sequence phase.Sequence
	Blocks   []block.ID
}

// Preempt takes the blocks of a sequence. The engine answers with Stopped when no
// step touches them any more; offloaded ones leave when their copies exist, by
// Evict.
type Preempt struct {
	Sequence phase.Sequence
	Reclaim  policy.Reclaim
	Reason   policy.Reason
}

// reset forgets what was decided and keeps the memory.
func (d *Decision) reset() {
	*d = Decision{
		Order: d.Order[:0], Pause: d.Pause[:0], Resume: d.Resume[:0], Force: d.Force[:0], Fork: d.Fork[:0], CopyOut: d.CopyOut[:0],
		Evict: d.Evict[:0], Recall: d.Recall[:0], Preempt: d.Preempt[:0], Reaped: d.Reaped[:0], Steps: 1,
	}
}

// Counters is what a governor has seen and done.
type Counters struct {
	Sequences, Steps int64
	Forced           [4]int64 // by reason
	// Preempted is by way of reclaim.
	Preempted [3]int64
	// CopiedBlocks and RecalledBlocks arrived; Failed did not.
	CopiedBlocks, RecalledBlocks, FailedCopies int64
	// Contradictions are facts that were left out; the last says what was wrong.
	Contradictions    int64
	LastContradiction error
	// Thoughts have ended, after so many ThinkTokens in all.
	Thoughts, ThinkTokens int64
	Lengths               ThoughtLengths
	// Transitions are think tokens whose entropy was above Probe.Transition.
	Transitions int64
	Reaped      int64
}

package replay

import (
	"meridian/decide/governor"
	"meridian/decide/policy"
	"meridian/kv"
)

// sequence is what a replay knows of a request beyond what policies see: how
// long it will be, what it shares, and what its reader has experienced.
type sequence struct {
	number  int64
	arrived ps
	// think and output are how many tokens it will have; until is how many are left
	// to the next change of phase, once it decodes.
	think, output int32
	until         int32
	prompt        int32
	tenant        int32
	// thought is what think would have been had no policy ended it; forced says why it
	// was, and converged is the synthetic point of convergence.
	thought, converged int32
	forced             governor.ForceReason
	counted            bool
	started            bool // it has been admitted once
	stamp              int64

	// thoughtEnd and lastToken are moments, 0 before.
	thoughtEnd, lastToken ps
	// late is by how many microseconds the reader is behind, and behind the sum of
	// that over the tokens of the answer.
	late, behind int64

	prefix       []uint64
	prefixTokens int32
	// shared is how many chunks of the prefix it holds in the cache, together with
	// others; alone says that no more are to be shared.
	shared int32
	alone  bool
	// remote is how many leading tokens are elsewhere, in the store or with lender.
	remote   int32
	lender   *engine
	lent     hold
	fetching bool
	at       *engine // where it is
	ticket   *ticket // its place there
	// leaving blocks are freed when their copy is complete.
	leaving hold
	// kept is how many leading blocks are left of what it held when it was
	// preempted; remains is where they are in the free list.
	kept, remains int32
	// lost is how many tokens it had computed when it was preempted.
	lost int32
	// decodeAt is the engine that goes on after this one's prefill.
	decodeAt *engine
}

// hold is what a sequence holds at an engine: chunks that it shares, and blocks
// of its own.
type hold struct {
	chunks, blocks int32
}

// tokens is how many tokens r has, computed or not.
func tokens(r *policy.Request) int32 { return r.Prompt + r.Think + r.Output }

// tierBlocks says to which tiers the blocks of r belong: a thought that goes on
// is active; of an answer, the thought's are complete and the rest is critical.
func tierBlocks(r *policy.Request, blockTokens int32, count func(kv.Tier, int32)) {
	if r.Phase != kv.Output {
		count(kv.ThinkActive, r.Blocks)
		return
	}
	thought := min(r.Think/blockTokens, r.Blocks)
	count(kv.ThinkComplete, thought)
	count(kv.OutputCritical, r.Blocks-thought)
}

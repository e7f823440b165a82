package policy

import "meridian/kv"

// Instant is a moment on the engine's clock, or a span of it, in nanoseconds.
type Instant int64

const (
	Microsecond Instant = 1e3
	Millisecond Instant = 1e6
	Second      Instant = 1e9
)

// State is where a request stands with its blocks.
type State uint8

const (
	// Waiting: it holds no blocks, because it is new or is to be recomputed.
	Waiting State = iota
	// Running: it holds blocks and took part in the last step.
	Running
	// Paused: it holds blocks and was left out.
	Paused
	// Leaving: its blocks are being copied out; they are freed when they are.
	Leaving
	// Away: its blocks are elsewhere, none is here.
	Away
	// Recalling: blocks are taken for it, and their contents are on their way.
	Recalling
)

var stateNames = [...]string{"waiting", "running", "paused", "leaving", "away", "recalling"}

func (s State) String() string {
	if int(s) >= len(stateNames) {
		return "unknown state"
	}
	return stateNames[s]
}

// Snapshot is what a policy sees: one engine between two steps.
type Snapshot struct {
	Now    Instant
	Limits Limits
	Costs  Costs
	// FreeBlocks may be taken at once, cached ones that no request uses among them.
	FreeBlocks int32
	// Requests come in the order in which they arrived.
	Requests []Request
	// Tenants is what each has been served, by Request.Tenant.
	Tenants []Tenant
}

// Request is one sequence.
type Request struct {
	Arrived Instant
	// LastServed is when it last took part in a step; 0 means never.
	LastServed Instant
	// ThoughtEnd is when it left thinking, or prefill if it does not think, and
	// FirstOutput when its first visible token came; 0 means not yet.
	ThoughtEnd, FirstOutput Instant
	Tenant                  int32
	// Pending tokens must be computed before the next one is found: 1 while it
	// decodes, more in prefill and recomputation.
	Pending int32
	// Length is how many tokens have their KV here. Of a Waiting one: how many of
	// its first ones others have computed and it will share.
	Length int32
	// Prompt, Think and Output are its tokens by kind, those found so far.
	Prompt, Think, Output int32
	// Blocks are held here; of a Waiting one: those that it will share and that
	// cost nothing, because others hold them; of one that is Away: those it will
	// need back.
	Blocks int32
	// Copied of these have a copy elsewhere.
	Copied int32
	// Preemptions is how often it lost its blocks, and Since how many tokens it
	// has found since it got them, or got them back.
	Preemptions, Since int32
	Phase              kv.Phase
	State              State
}

// Holds says whether blocks here are its own to run with.
func (r *Request) Holds() bool { return r.State == Running || r.State == Paused }

// Decodes says whether one token is all it needs to find the next one.
func (r *Request) Decodes() bool { return r.Pending == 1 && r.Phase != kv.Prefill }

// owed is how many tokens r may still find before it can be a victim again: each
// time it loses its blocks it is owed twice as many, up to a bound. So a request
// is computed anew a few times at most, however scarce memory is.
func (r *Request) owed() int32 {
	if r.Preemptions == 0 {
		return 0
	}
	return max(0, 1<<min(r.Preemptions-1, 8)-r.Since)
}

// Limits bound a step.
type Limits struct {
	// Tokens and Sequences are computed in one step at most.
	Tokens, Sequences int32
	// BlockTokens is the size of a block, Blocks how many there are.
	BlockTokens, Blocks int32
	// PreemptMaxFraction of those that hold blocks may lose them in one step,
	// but always one; stock does not ask.
	PreemptMaxFraction float64
}

// Costs are measured; who measures them calibrates them as it goes.
type Costs struct {
	// PrefillToken is the time of one more token in a step.
	PrefillToken Instant
	// CopiedBlock and RecalledBlock are the times to copy a block out and back;
	// 0 means that nothing can be copied.
	CopiedBlock, RecalledBlock Instant
	// Step is the time of a step as they are now.
	Step Instant
	// FreeTokens of prompts can be computed in a step beside those who decode now
	// without making it noticeably longer, because it waits for the weights; 0
	// means that it is not known.
	FreeTokens int32
}

// blocksFor is how many blocks so many tokens fill.
func (l *Limits) blocksFor(tokens int64) int32 {
	return int32((tokens + int64(l.BlockTokens) - 1) / int64(l.BlockTokens))
}

// need is how many more blocks r takes to compute so many tokens.
func (l *Limits) need(r *Request, tokens int32) int32 {
	return max(0, l.blocksFor(int64(r.Length)+int64(tokens))-r.Blocks)
}

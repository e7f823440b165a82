package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Policy decides. It keeps scratch memory between calls and nothing else, so
// one goroutine uses one value.
type Policy interface {
	Name() string
	// Decide overwrites d and reuses its memory: it does not allocate once both
	// have grown.
	Decide(s *Snapshot, d *Decision)
}

// ErrUnknownPolicy means that no policy has this name.
var ErrUnknownPolicy = errors.New("unknown policy")

// Options are the parameters of policies; each reads those it knows. Zero means
// the default.
type Options struct {
	// ChunkFree cuts prompts to what a step computes beside those who decode without
	// taking longer (Costs.FreeTokens), as meridian does: stock, static-budget,
	// pascal. vLLM has no such thing, so it is off by default.
	ChunkFree bool
	// ThinkCap ends a thought after so many tokens: static-budget.
	ThinkCap int32
	// ThinkTPOTBudget and OutputTPOTBudget are how long a step may take while
	// only thoughts take part, and while answers do; ThinkBatchMultiplier is how
	// many times the tokens of answers thoughts may have: dual-queue.
	ThinkTPOTBudget, OutputTPOTBudget Instant
	ThinkBatchMultiplier              float64
	// Quantum is the turn of an answer, DemoteAfter how many tokens a thought
	// goes first, in tokens: pascal.
	Quantum, DemoteAfter int32
	// Pace is how long a reader takes for a token, Patience how long one may be
	// left out before it goes first: pascal.
	Pace, Patience Instant
	// StepBudget is how long a step may take for the prompts in it; Backfill for
	// how long after its arrival a request that does not fit lets smaller ones come
	// in; MaxAge how long after its arrival it goes first in any case; FairTokens
	// how much more than others a tenant may be served before its requests wait
	// for theirs: meridian.
	StepBudget, Backfill, MaxAge Instant
	FairTokens                   int64
}

// Defaults of Options.
const (
	DefaultThinkCap             = 2048
	DefaultThinkTPOTBudget      = 80 * Millisecond
	DefaultOutputTPOTBudget     = 20 * Millisecond
	DefaultThinkBatchMultiplier = 2.5
	DefaultQuantum              = 500
	DefaultDemoteAfter          = 5000
	DefaultPace                 = 100 * Millisecond
	DefaultPatience             = 60 * Second
	DefaultStepBudget           = 80 * Millisecond
	DefaultBackfill             = 30 * Second
	DefaultMaxAge               = 1800 * Second
	DefaultFairTokens           = 1 << 24
)

func (o Options) withDefaults() Options {
	o.ThinkCap = cmp.Or(o.ThinkCap, DefaultThinkCap)
	o.ThinkTPOTBudget = cmp.Or(o.ThinkTPOTBudget, DefaultThinkTPOTBudget)
	o.OutputTPOTBudget = cmp.Or(o.OutputTPOTBudget, DefaultOutputTPOTBudget)
	o.ThinkBatchMultiplier = cmp.Or(o.ThinkBatchMultiplier, DefaultThinkBatchMultiplier)
	o.Quantum = cmp.Or(o.Quantum, DefaultQuantum)
	o.DemoteAfter = cmp.Or(o.DemoteAfter, DefaultDemoteAfter)
	o.Pace = cmp.Or(o.Pace, DefaultPace)
	o.Patience = cmp.Or(o.Patience, DefaultPatience)
	o.StepBudget = cmp.Or(o.StepBudget, DefaultStepBudget)
	o.Backfill = cmp.Or(o.Backfill, DefaultBackfill)
	o.MaxAge = cmp.Or(o.MaxAge, DefaultMaxAge)
	o.FairTokens = cmp.Or(o.FairTokens, DefaultFairTokens)
	return o
}

// check refuses what no policy can work with.
func (o *Options) check() error {
	if least := min(int64(o.ThinkCap), int64(o.Quantum), int64(o.DemoteAfter), o.FairTokens); least < 0 {
		return fmt.Errorf("a number of tokens must be > 0; got %d", least)
	}
	if least := min(o.ThinkTPOTBudget, o.OutputTPOTBudget, o.Pace, o.Patience, o.StepBudget, o.Backfill, o.MaxAge); least < 0 {
		return fmt.Errorf("a time must be > 0; got %d ns", least)
	}
	if !(o.ThinkBatchMultiplier >= 1) {
		return fmt.Errorf("the think batch's multiplier must be ≥ 1; got %v", o.ThinkBatchMultiplier)
	}
	return nil
}

var policies = []struct {
	name string
	make func(Options) Policy
}{
	{"stock", func(o Options) Policy { return &Stock{chunkFree: o.ChunkFree} }},
	{"static-budget", func(o Options) Policy { return &StaticBudget{stock: Stock{chunkFree: o.ChunkFree}, cap: o.ThinkCap} }},
	{"dual-queue", func(o Options) Policy { return newDualQueue(o) }},
	{"pascal", func(o Options) Policy { return newPascal(o) }},
	{"meridian", func(o Options) Policy { return newMeridian(o) }},
}

// Names lists the policies.
func Names() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}

// New makes a policy by its name.
func New(name string, o Options) (Policy, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	for _, p := range policies {
		if p.name == name {
			return p.make(o), nil
		}
	}
	return nil, fmt.Errorf("%w %q: the policies are %s", ErrUnknownPolicy, name, strings.Join(Names(), ", "))
}

// forever is the Steps of a decision that only an event ends.
const forever = math.MaxInt32

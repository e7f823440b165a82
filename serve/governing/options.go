package governing

import (
	"errors"
	"fmt"
	"math"
	"time"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/serve/door/doorpb"
)

// ErrSteps means that an engine cannot be governed by what it tells. It serves as it
// would alone.
var ErrSteps = errors.New("steps")

const (
	// maxSequences is many times what one engine runs; those beyond are not governed.
	maxSequences = 1 << 14
	// maxTenants of an engine are told apart; those beyond count as one.
	maxTenants = 1 << 10
	// maxTokens bounds prompts and steps: sums of a few do not overflow.
	maxTokens      = 1 << 24
	maxBlockTokens = 1 << 14
	maxRunning     = 1 << 14
	maxBlockBytes  = 1 << 40
	// maxBlocks is how many blocks all engines together have that are governed. Each takes
	// 64 bytes here as soon as an engine tells of it.
	maxBlocks = 8 << 20
	// plenty is how many blocks an engine has that does not tell.
	plenty = 1 << 30
)

// Model is how a model marks its thoughts, and what its tokens stand for.
type Model struct {
	Phase *phase.Model // nil: it does not think
	Texts func(id uint32) []byte
}

// Options is what governors go by: the agent's configuration.
type Options struct {
	// Policy is scheduler.policy, Scheduling its parameters.
	Policy             string
	Scheduling         policy.Options
	PreemptMaxFraction float64
	Budget             governor.Budget
	// Memory has kv_memory.think_phase_memory_fraction and aggressive_think_eviction.
	Memory block.Options
	// BlockSize is kv_memory.block_size_bytes and Capacity kv_memory.capacity_bytes; 0
	// means "auto".
	BlockSize, Capacity int64
	// BlockBytes is what a block of an engine takes, as it has registered; 0, or nil: that is
	// not known, and what it tells of itself counts.
	BlockBytes func(engine string) int64
	// OffloadThreshold is disagg.offload_threshold_blocks.
	OffloadThreshold int32
	// Store: what leaves an engine's memory can be brought back.
	Store bool
	// Wait is how long an engine waits for a decision before it plans without it.
	Wait time.Duration
	// Model tells of a model by the name that its engine gives it. An error refuses the
	// engine.
	Model func(name string) (Model, error)
	// Now is the clock.
	Now func() time.Time
}

// check refuses options that no engine could be governed by.
func (o *Options) check() error {
	if _, err := policy.New(o.Policy, o.Scheduling); err != nil {
		return err
	}
	if !(o.PreemptMaxFraction > 0 && o.PreemptMaxFraction <= 1) {
		return fmt.Errorf("live: the fraction that may be preempted is %g; it must be above 0, up to 1", o.PreemptMaxFraction)
	}
	if o.Now == nil || o.Wait < 0 {
		return errors.New("live: a clock must be given, and a wait that is not negative")
	}
	return o.Budget.Check()
}

// terms is what an engine goes by that serves this model.
func (o *Options) terms(m Model) *doorpb.GovernorTerms {
	t := &doorpb.GovernorTerms{
		Policy: o.Policy, WaitUs: uint32(min(o.Wait.Microseconds(), math.MaxUint32)),
		MaxThinkTokens: uint32(o.Budget.MaxThinkTokens), MinThinkTokens: uint32(o.Budget.Probe.MinThinkTokens),
	}
	if m.Phase != nil && m.Phase.Thinks() {
		t.EndTokens, t.Entropy = m.Phase.Force(), o.Budget.Entropy
	}
	return t
}

// governor is the one of an engine that tells this of itself.
func (o *Options) governor(engine string, about *doorpb.Steps, m Model) (*governor.Governor, governor.Options, error) {
	var none governor.Options
	switch {
	case about.MaxRunning < 1 || about.StepTokens < 1:
		return nil, none, fmt.Errorf("%w: max_running is %d and step_tokens %d: tell how many sequences and tokens a step of the engine has at most", ErrSteps, about.MaxRunning, about.StepTokens)
	case about.BlockTokens < 1 || about.BlockTokens > maxBlockTokens:
		return nil, none, fmt.Errorf("%w: block_tokens is %d: tell how many tokens a block has, 1 to %d", ErrSteps, about.BlockTokens, maxBlockTokens)
	}
	made := governor.Options{
		Model: m.Phase, Texts: m.Texts, Forks: about.Forks, Budget: o.Budget,
		Limits: policy.Limits{
			Tokens: int32(min(about.StepTokens, maxTokens)), Sequences: int32(min(about.MaxRunning, maxRunning)),
			BlockTokens: int32(about.BlockTokens), Blocks: plenty, PreemptMaxFraction: o.PreemptMaxFraction,
		},
		OffloadThreshold: o.OffloadThreshold, Offloads: about.Swaps && o.Store,
	}
	scheduling := o.Scheduling
	if !about.Forces || m.Phase == nil || len(m.Phase.Force()) == 0 {
		// Where thoughts end, others end them: none is counted as ended before they say so,
		// and of its tokens only the entropies are of use.
		made.Follows, made.Forks, made.Texts = true, false, nil
		scheduling.ThinkCap = math.MaxInt32
	}
	if about.Blocks > 0 {
		memory, err := o.memory(engine, about)
		if err != nil {
			return nil, none, fmt.Errorf("%w: %w", ErrSteps, err)
		}
		made.Blocks, made.Limits.Blocks = memory, int32(memory.Capacity)
	}
	var err error
	if made.Policy, err = policy.New(o.Policy, scheduling); err != nil {
		return nil, none, err
	}
	g, err := governor.New(made)
	return g, made, err
}

// memory is the block table of an engine: all of its blocks, of which kv_memory lets
// some be used.
func (o *Options) memory(engine string, about *doorpb.Steps) (block.Options, error) {
	blocks, size := int64(about.Blocks), int64(0)
	if o.BlockBytes != nil {
		size = o.BlockBytes(engine)
	}
	if size <= 0 { // its steps may come before its registration
		size = int64(min(about.BlockBytes, maxBlockBytes))
	}
	made := o.Memory
	made.Blocks, made.Capacity = int(blocks), int(blocks)
	if size <= 0 {
		return made, nil // what is given in bytes cannot be counted in blocks
	}
	fits, err := block.Memory{LentBytes: blocks * size, BlockBytes: size, SizeBytes: o.BlockSize, CapacityBytes: o.Capacity}.Options()
	if err != nil {
		return block.Options{}, err
	}
	made.Capacity, made.BlockBytes = fits.Capacity, fits.BlockBytes
	return made, nil
}

package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"meridian/decide/policy"
)

// Parameter is a number that a policy can be tuned by, in the unit that its
// name ends with.
type Parameter struct {
	Name     string
	Policies []string
	// Low and High bound what a search tries, on a logarithmic scale.
	Low, High float64
	set       func(*Candidate, float64)
	get       func(*Candidate) float64
}

// Parameters are those of all policies.
var Parameters = []Parameter{
	// How many tokens a step has at most, as vLLM's max_num_batched_tokens: for those
	// who do not cut prompts by themselves.
	tokens("step_tokens", 256, 8192, func(c *Candidate) *int32 { return &c.StepTokens }, "stock", "static-budget", "pascal"),
	// Whether prompts are cut to what a step computes for free: 1. A search leaves it
	// alone.
	{
		Name: "chunk_free", Policies: []string{"stock", "static-budget", "pascal"}, Low: 1, High: 1,
		set: func(c *Candidate, x float64) { c.Options.ChunkFree = x > 0 },
		get: func(c *Candidate) float64 {
			if c.Options.ChunkFree {
				return 1
			}
			return 0
		},
	},
	tokens("think_cap_tokens", 256, 16384, func(c *Candidate) *int32 { return &c.Options.ThinkCap }, "static-budget"),
	millis("think_tpot_budget_ms", 20, 400, func(c *Candidate) *policy.Instant { return &c.Options.ThinkTPOTBudget }, "dual-queue"),
	millis("output_tpot_budget_ms", 5, 100, func(c *Candidate) *policy.Instant { return &c.Options.OutputTPOTBudget }, "dual-queue"),
	{
		Name: "think_batch_multiplier", Policies: []string{"dual-queue"}, Low: 1, High: 16,
		set: func(c *Candidate, x float64) { c.Options.ThinkBatchMultiplier = x },
		get: func(c *Candidate) float64 { return c.Options.ThinkBatchMultiplier },
	},
	tokens("quantum_tokens", 50, 5000, func(c *Candidate) *int32 { return &c.Options.Quantum }, "pascal"),
	tokens("demote_after_tokens", 500, 32768, func(c *Candidate) *int32 { return &c.Options.DemoteAfter }, "pascal"),
	millis("pace_ms", 20, 200, func(c *Candidate) *policy.Instant { return &c.Options.Pace }, "pascal"),
	millis("patience_ms", 1000, 600000, func(c *Candidate) *policy.Instant { return &c.Options.Patience }, "pascal"),
	millis("step_budget_ms", 10, 500, func(c *Candidate) *policy.Instant { return &c.Options.StepBudget }, "meridian"),
	millis("backfill_ms", 1e3, 600e3, func(c *Candidate) *policy.Instant { return &c.Options.Backfill }, "meridian"),
	millis("max_age_ms", 60e3, 7200e3, func(c *Candidate) *policy.Instant { return &c.Options.MaxAge }, "meridian"),
	{
		Name: "fair_tokens", Policies: []string{"meridian"}, Low: 1 << 14, High: 1 << 26,
		set: func(c *Candidate, x float64) { c.Options.FairTokens = int64(math.Round(x)) },
		get: func(c *Candidate) float64 { return float64(c.Options.FairTokens) },
	},
}

func tokens(name string, low, high float64, field func(*Candidate) *int32, policies ...string) Parameter {
	return Parameter{
		Name: name, Policies: policies, Low: low, High: high,
		set: func(c *Candidate, x float64) { *field(c) = int32(math.Round(x)) },
		get: func(c *Candidate) float64 { return float64(*field(c)) },
	}
}

func millis(name string, low, high float64, field func(*Candidate) *policy.Instant, policies ...string) Parameter {
	return Parameter{
		Name: name, Policies: policies, Low: low, High: high,
		set: func(c *Candidate, x float64) {
			*field(c) = policy.Instant(math.Round(x * float64(policy.Millisecond)))
		},
		get: func(c *Candidate) float64 { return float64(*field(c)) / float64(policy.Millisecond) },
	}
}

// Of are the parameters of one policy.
func Of(policy string) []Parameter {
	return slices.DeleteFunc(slices.Clone(Parameters), func(p Parameter) bool { return !slices.Contains(p.Policies, policy) })
}

// NewCandidate is a policy under its own name, or, from NAME=POLICY, under
// another, so that one report can have it twice.
func NewCandidate(text string) (Candidate, error) {
	name, decides, renamed := strings.Cut(text, "=")
	if !renamed {
		return Candidate{Name: text, Policy: text}, nil
	}
	strange := func(c rune) bool {
		return c != '-' && c != '_' && c != '+' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	switch {
	case name == "" || len(name) > maxName || strings.ContainsFunc(name, strange):
		return Candidate{}, fmt.Errorf("%w: the name %q of a policy has 1 to %d letters, digits, -, _ and +", ErrOptions, name, maxName)
	case name != decides && slices.Contains(policy.Names(), name):
		return Candidate{}, fmt.Errorf("%w: %s is a policy of its own, not a name for %s", ErrOptions, name, decides)
	}
	return Candidate{Name: name, Policy: decides}, nil
}

// String is what NewCandidate takes.
func (c Candidate) String() string {
	if c.Name == c.Policy {
		return c.Name
	}
	return c.Name + "=" + c.Policy
}

// maxName is how long a candidate's name may be.
const maxName = 40

// Set gives a candidate's parameter a value, from NAME=VALUE.
func (c *Candidate) Set(setting string) error {
	name, value, assigned := strings.Cut(setting, "=")
	known := Of(c.Policy)
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.Name
		if p.Name != name {
			continue
		}
		x, err := strconv.ParseFloat(value, 64)
		if !assigned || err != nil || !(x > 0 && x < math.MaxInt32) {
			return fmt.Errorf("%w: %s of %s is a number above 0; got %q", ErrOptions, name, c.Policy, value)
		}
		p.set(c, x)
		return nil
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: the policy %s has no parameters", ErrOptions, c.Policy)
	}
	return fmt.Errorf("%w: the policy %s has no parameter %q; it has %s", ErrOptions, c.Policy, name, strings.Join(names, ", "))
}

// settings are the parameters of a candidate that were set, as Set takes them.
func settings(c Candidate) string {
	var set []string
	for _, p := range Of(c.Policy) {
		if x := p.get(&c); x != 0 {
			set = append(set, p.Name+"="+strconv.FormatFloat(x, 'g', 6, 64))
		}
	}
	return strings.Join(set, " ")
}

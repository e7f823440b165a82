package sweep

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"meridian/sched"
)

// Parameter is a number that a policy can be tuned by, in the unit that its
// name ends with.
type Parameter struct {
	Name     string
	Policies []string
	// Low and High bound what a search tries, on a logarithmic scale.
	Low, High float64
	set       func(*sched.Options, float64)
	get       func(*sched.Options) float64
}

// Parameters are those of all policies.
var Parameters = []Parameter{
	tokens("think_cap_tokens", 256, 16384, func(o *sched.Options) *int32 { return &o.ThinkCap }, "static-budget"),
	millis("think_tpot_budget_ms", 20, 400, func(o *sched.Options) *sched.Instant { return &o.ThinkTPOTBudget }, "dual-queue"),
	millis("output_tpot_budget_ms", 5, 100, func(o *sched.Options) *sched.Instant { return &o.OutputTPOTBudget }, "dual-queue"),
	{
		Name: "think_batch_multiplier", Policies: []string{"dual-queue"}, Low: 1, High: 16,
		set: func(o *sched.Options, x float64) { o.ThinkBatchMultiplier = x },
		get: func(o *sched.Options) float64 { return o.ThinkBatchMultiplier },
	},
	tokens("quantum_tokens", 50, 5000, func(o *sched.Options) *int32 { return &o.Quantum }, "pascal"),
	tokens("demote_after_tokens", 500, 32768, func(o *sched.Options) *int32 { return &o.DemoteAfter }, "pascal"),
	millis("pace_ms", 20, 200, func(o *sched.Options) *sched.Instant { return &o.Pace }, "pascal"),
	millis("patience_ms", 1000, 600000, func(o *sched.Options) *sched.Instant { return &o.Patience }, "pascal"),
	millis("step_budget_ms", 10, 500, func(o *sched.Options) *sched.Instant { return &o.StepBudget }, "meridian"),
	millis("backfill_ms", 1e3, 600e3, func(o *sched.Options) *sched.Instant { return &o.Backfill }, "meridian"),
	millis("max_age_ms", 60e3, 7200e3, func(o *sched.Options) *sched.Instant { return &o.MaxAge }, "meridian"),
	{
		Name: "fair_tokens", Policies: []string{"meridian"}, Low: 1 << 14, High: 1 << 26,
		set: func(o *sched.Options, x float64) { o.FairTokens = int64(math.Round(x)) },
		get: func(o *sched.Options) float64 { return float64(o.FairTokens) },
	},
}

func tokens(name string, low, high float64, field func(*sched.Options) *int32, policies ...string) Parameter {
	return Parameter{
		Name: name, Policies: policies, Low: low, High: high,
		set: func(o *sched.Options, x float64) { *field(o) = int32(math.Round(x)) },
		get: func(o *sched.Options) float64 { return float64(*field(o)) },
	}
}

func millis(name string, low, high float64, field func(*sched.Options) *sched.Instant, policies ...string) Parameter {
	return Parameter{
		Name: name, Policies: policies, Low: low, High: high,
		set: func(o *sched.Options, x float64) {
			*field(o) = sched.Instant(math.Round(x * float64(sched.Millisecond)))
		},
		get: func(o *sched.Options) float64 { return float64(*field(o)) / float64(sched.Millisecond) },
	}
}

// Of are the parameters of one policy.
func Of(policy string) []Parameter {
	return slices.DeleteFunc(slices.Clone(Parameters), func(p Parameter) bool { return !slices.Contains(p.Policies, policy) })
}

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
		p.set(&c.Options, x)
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
		if x := p.get(&c.Options); x != 0 {
			set = append(set, p.Name+"="+strconv.FormatFloat(x, 'g', 6, 64))
		}
	}
	return strings.Join(set, " ")
}

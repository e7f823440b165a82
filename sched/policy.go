package sched

import (
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
	// ThinkCap ends a thought after so many tokens: static-budget.
	ThinkCap int32
}

// Defaults of Options.
const (
	DefaultThinkCap = 2048
)

func (o Options) withDefaults() Options {
	if o.ThinkCap == 0 {
		o.ThinkCap = DefaultThinkCap
	}
	return o
}

var policies = []struct {
	name string
	make func(Options) Policy
}{
	{"stock", func(Options) Policy { return &Stock{} }},
	{"static-budget", func(o Options) Policy { return &StaticBudget{cap: o.ThinkCap} }},
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
	if o.ThinkCap < 0 {
		return nil, fmt.Errorf("policy %s: the cap on thinking must be > 0; got %d", name, o.ThinkCap)
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

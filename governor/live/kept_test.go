package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"meridian/door/doorpb"
	"meridian/phase"
)

// Blocks of all engines are bounded before there are tables of them, and what an engine
// had that went, or was refused, others may have.
func TestBlocksOfAll(t *testing.T) {
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	g.blocks = maxBlocks - 100 // others'
	about := able()
	about.Blocks = 101
	if _, err := g.Govern("a", about); !errors.Is(err, ErrSteps) || !strings.Contains(err.Error(), "larger blocks") {
		t.Errorf("got %v", err)
	}
	about.Blocks = 50
	a := govern(t, g, "a", about)
	if _, err := g.Govern("a", about); !errors.Is(err, ErrSteps) {
		t.Errorf("got %v", err)
	}
	if g.blocks != maxBlocks-50 {
		t.Errorf("%d blocks", g.blocks)
	}
	a.Close()
	if g.blocks != maxBlocks-100 {
		t.Errorf("%d blocks after all", g.blocks)
	}
}

// The memory of a large step is given up after it.
func TestLargeStepIsForgotten(t *testing.T) {
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	a := govern(t, g, "a", able())
	n := 10 * keptFacts
	m := &doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 5}}}
	step(t, a, m)
	m = &doorpb.Step{Number: 2, Evicted: make([]uint32, n), Sequences: []uint64{1}, Computed: []uint32{5}, Counts: []uint32{uint32(n)}, Tokens: make([]uint32, n), Entropies: make([]float32, n)}
	step(t, a, m)
	if s := a.engine.scheduler; cap(s.facts.Evicted) > keptFacts || cap(s.nats) > keptFacts {
		t.Errorf("%d evicted and %d entropies are kept", cap(s.facts.Evicted), cap(s.nats))
	}
}

// Tenants that have gone make room for others, and those that are here keep their numbers.
func TestTenantsAreForgotten(t *testing.T) {
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	a := govern(t, g, "a", able())
	step(t, a, &doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Sequence: 0, Tenant: "stays", PromptTokens: 5}}})
	s := a.engine.scheduler
	for i := range uint64(3 * maxTenants) {
		number := i + 1
		step(t, a, &doorpb.Step{Number: 2 * number, Begun: []*doorpb.Begun{
			{Sequence: number, Tenant: fmt.Sprint(i), PromptTokens: 5},
			{Sequence: number, Tenant: "again " + fmt.Sprint(i), PromptTokens: 5},
		}})
		if got := s.sequences[phase.Sequence(number)].tenant; got == s.sequences[0].tenant || got >= maxTenants {
			t.Fatalf("tenant %d has number %d", i, got)
		}
		step(t, a, &doorpb.Step{Number: 2*number + 1, Finished: []uint64{number}})
	}
	if s.tenants.busy != 1 || len(s.tenants.numbers) > maxTenants || s.tenants.numbers["stays"] != s.sequences[0].tenant {
		t.Errorf("%d busy of %d", s.tenants.busy, len(s.tenants.numbers))
	}
}

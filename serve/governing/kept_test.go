package governing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"meridian/decide/phase"
	"meridian/serve/door/doorpb"
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

// One that remembers the order hears of it when it changes; any other always.
func TestOrderStays(t *testing.T) {
	for _, remembers := range []bool{false, true} {
		g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
		a := govern(t, g, "a", &doorpb.Steps{Model: "thinker", BlockTokens: 16, MaxRunning: 8, StepTokens: 8192, Remembers: remembers})
		order, number := []uint64(nil), uint64(0)
		for _, at := range []struct {
			m     *doorpb.Step
			stays bool
			order []uint64
		}{
			{&doorpb.Step{Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 4}, {Sequence: 2, PromptTokens: 4}}}, false, []uint64{1, 2}},
			{&doorpb.Step{Sequences: []uint64{1, 2}, Computed: []uint32{4, 4}, Counts: []uint32{1, 1}, Tokens: []uint32{word, word}}, false, []uint64{1, 2}}, // of a token each now
			{&doorpb.Step{Sequences: []uint64{1, 2}, Computed: []uint32{1, 1}, Counts: []uint32{1, 1}, Tokens: []uint32{word, word}}, true, []uint64{1, 2}},
			{&doorpb.Step{Finished: []uint64{1}}, false, []uint64{2}},
			{&doorpb.Step{Sequences: []uint64{2}, Computed: []uint32{1}, Counts: []uint32{1}, Tokens: []uint32{word}}, true, []uint64{2}},
			{&doorpb.Step{Begun: []*doorpb.Begun{{Sequence: 3, PromptTokens: 1}}}, false, []uint64{2, 3}},
		} {
			number++
			at.m.Number, at.m.FreeBlocks = number, 1<<10
			d := step(t, a, at.m)
			if d.OrderStays != (remembers && at.stays) || d.OrderStays && len(d.Order)+len(d.OrderTokens) > 0 {
				t.Fatalf("remembers %v, step %d: %v", remembers, number, d)
			}
			if !d.OrderStays {
				order = slices.Clone(d.Order)
			}
			if !slices.Equal(order, at.order) {
				t.Fatalf("remembers %v, step %d: %v runs, want %v", remembers, number, order, at.order)
			}
		}
	}
}

package governing

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"meridian/decide/phase"
	"meridian/decide/policy"
	"meridian/serve/door/doorpb"
)

// An engine that tells nonsense of itself is refused, with what to do.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*doorpb.Steps)
		want   string
	}{
		"no limits":         {func(s *doorpb.Steps) { s.MaxRunning = 0 }, "max_running"},
		"no tokens":         {func(s *doorpb.Steps) { s.StepTokens = 0 }, "step_tokens"},
		"no size of blocks": {func(s *doorpb.Steps) { s.BlockTokens = 0 }, "block_tokens"},
		"huge blocks":       {func(s *doorpb.Steps) { s.BlockTokens = math.MaxUint32 }, "block_tokens"},
		"two tables":        {func(s *doorpb.Steps) { s.Model = "two" }, "two tables"},
	} {
		t.Run(name, func(t *testing.T) {
			about := able()
			c.change(about)
			g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
			if _, err := g.Govern("a", about); !errors.Is(err, ErrSteps) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if len(g.engines) != 0 {
				t.Error("a trace is left")
			}
		})
	}
	about := able()
	about.MaxRunning, about.StepTokens = math.MaxUint32, math.MaxUint32
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	a := govern(t, g, "a", about)
	if d := step(t, a, &doorpb.Step{Number: 1, FreeBlocks: math.MaxUint32, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 5}}}); len(d.Order) != 1 {
		t.Errorf("huge limits are bounded: %v", d)
	}
}

// Sequences and tenants are bounded, whatever an engine begins.
func TestBounds(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "stock"))
	a := govern(t, g, "a", able())
	m := &doorpb.Step{Number: 1, FreeBlocks: 64}
	for i := range uint64(maxSequences + 10) {
		m.Begun = append(m.Begun, &doorpb.Begun{Sequence: i, Tenant: fmt.Sprint(i), PromptTokens: 5})
	}
	step(t, a, m)
	s := a.engine.scheduler
	if len(s.sequences) != maxSequences || len(s.tenants.numbers) != maxTenants || s.refused != 10 {
		t.Errorf("%d sequences, %d tenants, %d refused", len(s.sequences), len(s.tenants.numbers), s.refused)
	}
	a.Close()
	a = govern(t, g, "a", able())
	step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{
		{Sequence: 1}, // no prompt
		{Sequence: 2, PromptTokens: math.MaxUint32},
		{Sequence: 3, PromptTokens: maxTokens + 1},
		{Sequence: 4, PromptTokens: 5},
		{Sequence: 4, PromptTokens: 6},
		{Sequence: 5, PromptTokens: maxTokens, CachedTokens: math.MaxUint32, SharedBlocks: math.MaxUint32, MaxThinkTokens: math.MaxUint32},
	}})
	if s := a.engine.scheduler; len(s.sequences) != 2 || s.sequences[4] == nil || s.sequences[5] == nil || s.refused != 2 {
		t.Errorf("%d sequences, %d refused", len(s.sequences), s.refused)
	}
	if got := g.Engines()[0]; got.Contradictions != 2 || got.Contradiction == "" || len(got.Requests) != 2 {
		t.Errorf("seen: %+v", got)
	}
}

// An engine that says that many large blocks are shared does not make a governor fail, and what is
// shared is bounded by what is cached.
func TestSharedBlocksThatCannotBe(t *testing.T) {
	for _, policy := range policy.Names() {
		t.Run(policy, func(t *testing.T) {
			a := govern(t, newGovernors(t, testOptions(t, &clock{}, policy)), "a", &doorpb.Steps{Model: "thinker", Blocks: 1, BlockTokens: maxBlockTokens, MaxRunning: 1, StepTokens: 1})
			begun := &doorpb.Begun{Sequence: 1, PromptTokens: 131203, CachedTokens: 131202, SharedBlocks: 131200}
			s := a.engine.scheduler
			s.begin(begun, a.engine)
			if shared := s.facts.Arrivals[0].Shared; shared != 9 {
				t.Errorf("131,202 tokens are cached in %d blocks of %d", shared, maxBlockTokens)
			}
			clear(s.sequences)
			step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 1, Begun: []*doorpb.Begun{begun}, Sequences: []uint64{1}, Computed: []uint32{1}, Counts: []uint32{1}, Tokens: []uint32{word}})
		})
	}
}

// No message makes a governor fail: it refuses, or it decides about sequences that were
// begun.
func TestHostile(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := &clock{}
		g := newGovernors(t, testOptions(t, c, rapid.SampledFrom([]string{"meridian", "pascal", "dual-queue"}).Draw(r, "policy")))
		about := able()
		about.Blocks, about.BlockTokens = rapid.SampledFrom([]uint32{0, 1, 64}).Draw(r, "blocks of the engine"), rapid.SampledFrom([]uint32{1, 4, maxBlockTokens}).Draw(r, "block tokens")
		a, b := govern(t, g, "a", about), govern(t, g, "a", measuring())
		number := rapid.OneOf(rapid.Uint32Range(0, 5), rapid.Uint32Range(0, maxTokens), rapid.SampledFrom([]uint32{maxTokens, math.MaxInt32, math.MaxUint32}))
		column := rapid.SliceOfN(number, 0, 4)
		begun := make(map[uint64]bool)
		for n := range rapid.IntRange(1, 20).Draw(r, "steps") {
			m := &doorpb.Step{Number: uint64(n + 1), TookNs: uint64(number.Draw(r, "took")) << 32, FreeBlocks: number.Draw(r, "free")}
			for range rapid.IntRange(0, 3).Draw(r, "begun") {
				s := uint64(number.Draw(r, "sequence"))
				begun[s] = true
				m.Begun = append(m.Begun, &doorpb.Begun{
					Sequence: s, PromptTokens: number.Draw(r, "prompt"), Generated: column.Draw(r, "generated"), CachedTokens: number.Draw(r, "cached"),
					SharedBlocks: number.Draw(r, "shared"), MaxThinkTokens: number.Draw(r, "asked"),
				})
			}
			for _, s := range column.Draw(r, "sequences") {
				tokens := column.Draw(r, "tokens")
				m.Sequences, m.Computed = append(m.Sequences, uint64(s)), append(m.Computed, number.Draw(r, "computed"))
				m.Counts, m.Tokens = append(m.Counts, uint32(len(tokens))), append(m.Tokens, tokens...)
				m.BlockCounts, m.Blocks = append(m.BlockCounts, 1), append(m.Blocks, number.Draw(r, "block"))
			}
			m.Evicted = column.Draw(r, "evicted")
			for _, s := range column.Draw(r, "others") {
				m.Finished = append(m.Finished, uint64(s))
				m.Stopped = append(m.Stopped, &doorpb.Stopped{Sequence: uint64(s), Lost: s%2 == 0})
				m.Copied = append(m.Copied, &doorpb.Copied{Sequence: uint64(s), Blocks: column.Draw(r, "copied"), TookNs: math.MaxUint64, Whole: true})
				m.Recalled = append(m.Recalled, &doorpb.Copied{Sequence: uint64(s), Blocks: column.Draw(r, "recalled"), TookNs: math.MaxUint64, Whole: true})
				m.Forked, m.ForkNats = append(m.Forked, uint64(s)), append(m.ForkNats, float32(math.Inf(1)))
			}
			other := proto.Clone(m).(*doorpb.Step)
			other.Tokens, other.Places, other.Entropies = nil, m.Computed, make([]float32, len(m.Tokens))
			step(t, b, other)
			d := step(t, a, m)
			for _, s := range d.Order {
				if !begun[s] {
					r.Fatalf("%d is to run, and never began", s)
				}
			}
			if len(a.engine.scheduler.sequences) != int(g.Metrics().Tracked) {
				r.Fatalf("%d sequences here, %d in the governor", len(a.engine.scheduler.sequences), g.Metrics().Tracked)
			}
		}
		for s := range a.engine.scheduler.sequences {
			if !begun[uint64(s)] || a.engine.scheduler.governor.Phase(phase.Sequence(s)).String() == "complete" {
				r.Fatalf("%d is left", s)
			}
		}
	})
}

// A step of 256 requests that decode.
func BenchmarkStep(b *testing.B) {
	for _, elsewhere := range []bool{false, true} {
		b.Run(map[bool]string{false: "own entropies", true: "measured elsewhere"}[elsewhere], func(b *testing.B) {
			c := &clock{}
			o := testOptions(b, c, "meridian")
			o.Budget.MaxThinkTokens = math.MaxInt32 - 1
			g := newGovernors(b, o)
			a, other := govern(b, g, "a", &doorpb.Steps{Model: "thinker", BlockTokens: 16, MaxRunning: 256, StepTokens: 8192, Forces: true}), govern(b, g, "a", measuring())
			m := &doorpb.Step{Number: 1, FreeBlocks: 1 << 20, TookNs: 1e7}
			for i := range uint64(256) {
				m.Begun = append(m.Begun, &doorpb.Begun{Sequence: i, PromptTokens: 100, Tail: []uint32{thinkID}})
			}
			step(b, a, m)
			m.Begun = nil
			for i := range uint64(256) {
				m.Sequences, m.Computed, m.Counts, m.Tokens = append(m.Sequences, i), append(m.Computed, 100), append(m.Counts, 1), append(m.Tokens, word)
				m.Entropies, m.Places = append(m.Entropies, 0.5), append(m.Places, 0)
			}
			m.Number++
			step(b, a, m)
			for i := range m.Computed {
				m.Computed[i] = 1
			}
			told := &doorpb.Step{Sequences: m.Sequences, Counts: m.Counts, Entropies: m.Entropies, Places: m.Places}
			if elsewhere {
				m.Entropies = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Number++
				told.Number++
				if elsewhere {
					step(b, other, told)
					for i := range told.Places {
						told.Places[i]++
					}
				}
				if d := step(b, a, m); len(d.Order) != 256 {
					b.Fatalf("%d run", len(d.Order))
				}
			}
		})
	}
}

package governing

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/decide/block"
	"meridian/decide/entropy"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/serve/door/doorpb"
)

const (
	thinkID, endID, lastID = 90, 91, 92
	word                   = 5
	paragraph              = 6
	comma                  = 7
)

var texts = map[uint32][]byte{word: []byte(" word"), paragraph: []byte(".\n\n"), comma: []byte(",")}

// text is what the tokens of the tests stand for.
func text(id uint32) []byte {
	return texts[id]
}

func thinker(t testing.TB) *phase.Model {
	t.Helper()
	m, err := phase.NewModel(phase.Markers{
		Start: []phase.Marker{{IDs: []uint32{thinkID}}}, End: []phase.Marker{{IDs: []uint32{endID, lastID}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// clock is one that a test turns.
type clock struct{ at time.Time }

func (c *clock) now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

func testOptions(t testing.TB, c *clock, policy string) Options {
	model := Model{Phase: thinker(t), Texts: text}
	return Options{
		Policy: policy, PreemptMaxFraction: 0.1, OffloadThreshold: 2, Store: true, Wait: 500 * time.Microsecond, Now: c.now,
		Budget: governor.Budget{MaxThinkTokens: 24, Entropy: true, Probe: entropy.Options{Alpha: 0.5, EATVariance: 1e-3, EATInterval: 1, RPDI: 2, Transition: 2.5, MinThinkTokens: 4}},
		Memory: block.Options{ThinkFraction: 0.4},
		Model: func(name string) (Model, error) {
			switch name {
			case "thinker":
				return model, nil
			case "two":
				return Model{}, fmt.Errorf("%w: two tables", ErrSteps)
			}
			return Model{}, nil
		},
	}
}

func newGovernors(t testing.TB, o Options) *Governors {
	t.Helper()
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func govern(t testing.TB, g *Governors, engine string, about *doorpb.Steps) *Connection {
	t.Helper()
	c, err := g.Govern(engine, about)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func step(t testing.TB, c *Connection, m *doorpb.Step) *doorpb.Decision {
	t.Helper()
	d, err := c.Step(m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func able() *doorpb.Steps {
	return &doorpb.Steps{Model: "thinker", Blocks: 64, BlockTokens: 4, MaxRunning: 8, StepTokens: 64, Forces: true, Forks: true, Swaps: true}
}

func measuring() *doorpb.Steps { return &doorpb.Steps{Model: "thinker", Measures: true} }

// An engine is told what it goes by: what ends a thought only where its model has it.
func TestTerms(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "pascal"))
	terms := govern(t, g, "a", able()).Terms()
	if terms.Policy != "pascal" || terms.WaitUs != 500 || terms.MaxThinkTokens != 24 || terms.MinThinkTokens != 4 || !terms.Entropy || !slices.Equal(terms.EndTokens, []uint32{endID, lastID}) {
		t.Errorf("got %v", terms)
	}
	about := able()
	about.Model = "another"
	if terms := govern(t, g, "b", about).Terms(); terms.Entropy || len(terms.EndTokens) > 0 {
		t.Errorf("of a model without markers: %v", terms)
	}
	if terms := govern(t, g, "a", measuring()).Terms(); !terms.Entropy || len(terms.EndTokens) != 2 {
		t.Errorf("who measures is told %v", terms)
	}
}

// A model without markers is ordered, and nothing of it is forced.
func TestNoMarkers(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "static-budget"))
	about := able()
	about.Model = "another"
	a := govern(t, g, "a", about)
	d := step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 3}}})
	for n := uint64(2); n < 60; n++ {
		if len(d.Order) != 1 || len(d.Force) > 0 {
			t.Fatalf("step %d: %v", n, d)
		}
		d = step(t, a, &doorpb.Step{Number: n, FreeBlocks: 64, Sequences: []uint64{1}, Computed: []uint32{1}, Counts: []uint32{1}, Tokens: []uint32{word}})
	}
	if m := g.Metrics(); m.Governor.Forced != [4]int64{} || m.Tracked != 1 {
		t.Errorf("got %+v", m)
	}
}

// An engine that tells nothing of its blocks is not starved for want of them.
func TestBlocksNotTold(t *testing.T) {
	g := newGovernors(t, testOptions(t, &clock{}, "meridian"))
	about := able()
	about.Blocks = 0
	a := govern(t, g, "a", about)
	if d := step(t, a, &doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 30}}}); len(d.Order) != 1 {
		t.Errorf("got %v", d)
	}
	step(t, a, &doorpb.Step{Number: 2, FreeBlocks: 9})
	if d := step(t, a, &doorpb.Step{Number: 3, FreeBlocks: 0, Begun: []*doorpb.Begun{{Sequence: 2, PromptTokens: 30}}}); slices.Contains(d.Order, 2) {
		t.Errorf("it told of blocks, has none, and 2 comes in: %v", d)
	}
}

// kv_memory.capacity_bytes leaves blocks out, and a size that is not the engine's is
// refused.
func TestMemory(t *testing.T) {
	o := testOptions(t, &clock{}, "stock")
	o.Capacity, o.BlockBytes = 4*4096, func(string) int64 { return 4096 }
	g := newGovernors(t, o)
	a := govern(t, g, "a", able())
	d := step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 12}, {Sequence: 2, PromptTokens: 12}}})
	if !slices.Equal(d.Order, []uint64{1}) {
		t.Errorf("4 blocks may be used, two prompts take 6: %v", d)
	}
	step(t, a, &doorpb.Step{Number: 2, FreeBlocks: 61, Sequences: []uint64{1}, Computed: []uint32{12}, Counts: []uint32{1}, Tokens: []uint32{word}, BlockCounts: []uint32{3}, Blocks: []uint32{1, 2, 3}})
	if m := g.Metrics(); m.UsedBytes != 3*4096 || m.CapacityBytes != 4*4096 {
		t.Errorf("%d bytes are in use, of %d", m.UsedBytes, m.CapacityBytes)
	}
	a.Close()
	if m := g.Metrics(); m.UsedBytes != 0 || m.CapacityBytes != 0 {
		t.Errorf("%d bytes of %d are in use, and the engine is gone", m.UsedBytes, m.CapacityBytes)
	}
	// Of an engine that has not registered what it tells of itself counts, and after that
	// what it has registered.
	for name, registered := range map[string]func(string) int64{"it cannot be asked": nil, "not registered": func(string) int64 { return 0 }, "registered": func(string) int64 { return 4096 }} {
		o.BlockBytes = registered
		about := able()
		about.BlockBytes = 4096
		if name == "registered" {
			about.BlockBytes = math.MaxUint64
		}
		g := newGovernors(t, o)
		a := govern(t, g, "a", about)
		step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 61, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 12}}})
		step(t, a, &doorpb.Step{Number: 2, FreeBlocks: 61, Sequences: []uint64{1}, Computed: []uint32{12}, BlockCounts: []uint32{3}, Blocks: []uint32{1, 2, 3}})
		if m := g.Metrics(); m.UsedBytes != 3*4096 || a.engine.scheduler.capacity != 4 {
			t.Errorf("%s: %d bytes are in use, and %d blocks may be", name, m.UsedBytes, a.engine.scheduler.capacity)
		}
	}
	o.BlockBytes = nil
	huge := able()
	huge.BlockBytes = math.MaxUint64 // bounded: sums do not overflow
	if _, err := newGovernors(t, o).Govern("a", huge); err == nil {
		t.Error("four times 4096 bytes hold a block of a terabyte")
	}
	o.BlockSize, o.BlockBytes = 8192, func(string) int64 { return 4096 }
	if _, err := newGovernors(t, o).Govern("a", able()); err == nil || !strings.Contains(err.Error(), "block_size_bytes") {
		t.Errorf("got %v", err)
	}
}

// One scheduler at a time; what is forgotten at its end is counted on.
func TestClose(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "stock"))
	a := govern(t, g, "a", able())
	if _, err := g.Govern("a", able()); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second scheduler: %v", err)
	}
	b := govern(t, g, "a", measuring())
	step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 3}}})
	step(t, b, &doorpb.Step{Number: 1, Sequences: []uint64{1}, Counts: []uint32{2}, Entropies: []float32{1, 2}, Places: []uint32{0}})
	before := g.Metrics()
	a.Close()
	a.Close()
	after := g.Metrics()
	if after.Tracked != 0 || after.Engines != 0 {
		t.Errorf("left over: %+v", after)
	}
	before.Engines, before.Tracked, before.WaitThink, before.Governor.Sequences = 0, 0, 0, 0
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Blocks" || p.Last().String() == ".Capacity" }, cmp.Ignore())
	if diff := cmp.Diff(before, after, ignore); diff != "" {
		t.Error(diff)
	}
	if _, err := a.Step(&doorpb.Step{Number: 2}); err == nil {
		t.Error("a connection that has ended takes a step")
	}
	step(t, b, &doorpb.Step{Number: 2})
	a = govern(t, g, "a", able())
	if d := step(t, a, &doorpb.Step{Number: 1, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: 1, PromptTokens: 3}}}); len(d.Order) != 1 {
		t.Errorf("the engine comes back: %v", d)
	}
	a.Close()
	b.Close()
	if len(g.engines) != 0 || len(g.Engines()) != 0 {
		t.Errorf("%d engines are left", len(g.engines))
	}
}

// thought is the steps of one sequence that thinks.
type thought struct {
	t      testing.TB
	number uint64
	c      *Connection
	turn   func()
}

// token commits one, and says what was decided; measured NaN means that none is told.
func (h *thought) token(id uint32, nats float32) *doorpb.Decision {
	h.t.Helper()
	h.number++
	h.turn()
	m := &doorpb.Step{Number: h.number, FreeBlocks: 60, TookNs: 1e6, Sequences: []uint64{7}, Computed: []uint32{1}, Counts: []uint32{1}, Tokens: []uint32{id}}
	if !math.IsNaN(float64(nats)) {
		m.Entropies = []float32{nats}
	}
	return step(h.t, h.c, m)
}

func (h *thought) begin(generated []uint32, cap uint32) {
	h.t.Helper()
	h.number++
	step(h.t, h.c, &doorpb.Step{Number: h.number, FreeBlocks: 64, Begun: []*doorpb.Begun{{Sequence: 7, Id: "request", PromptTokens: 3, Generated: generated, MaxThinkTokens: cap}}})
}

// forcedAt feeds tokens of a thought until it is ended, and says after how many.
func (h *thought) forcedAt(nats func(i int) float32) (int, string) {
	h.t.Helper()
	for i := range 3000 {
		if d := h.token(comma, nats(i)); len(d.Force) > 0 {
			if !slices.Equal(d.Force[0].Tokens, []uint32{endID, lastID}) || d.Force[0].Sequence != 7 || d.Step != h.number {
				h.t.Fatalf("forced by %v", d)
			}
			return i + 1, d.Force[0].Reason
		}
	}
	h.t.Fatal("never forced")
	return 0, ""
}

func newThought(t testing.TB, g *Governors, c *clock, engine string) *thought {
	return &thought{t: t, c: govern(t, g, engine, able()), turn: func() { c.advance(time.Millisecond) }}
}

func unmeasured(int) float32 { return float32(math.NaN()) }

// A request that moves keeps its phase and what its thought may still take.
func TestResumed(t *testing.T) {
	for _, moved := range []int{1, 2, 7, 19} {
		c := &clock{}
		g := newGovernors(t, testOptions(t, c, "meridian"))
		there := newThought(t, g, c, "there")
		written := []uint32{thinkID}
		for range moved - 1 {
			written = append(written, word)
		}
		there.begin(written, 20)
		at, reason := there.forcedAt(unmeasured)
		if at != 20-(moved-1) || reason != "hard_cap" {
			t.Errorf("after %d tokens elsewhere: forced after %d more, %s", moved, at, reason)
		}
		r := g.Engines()[0].Requests[0]
		if r.Phase != "think" || r.Think != 20 || r.Cap != 20 || !r.Resumed || r.Decided != "force" || r.Reason != "hard_cap" || r.ID != "request" {
			t.Errorf("it stands so: %+v", r)
		}
		there.token(endID, 0)
		there.token(lastID, 0)
		there.token(word, 0)
		if r := g.Engines()[0].Requests[0]; r.Phase != "output" || r.Think != 20 || r.Output != 1 {
			t.Errorf("after the forced end: %+v", r)
		}
	}
	// One that moves in its answer answers on.
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "meridian"))
	there := newThought(t, g, c, "there")
	there.begin([]uint32{thinkID, word, word, endID, lastID, word}, 0)
	there.token(word, 0)
	if r := g.Engines()[0].Requests[0]; r.Phase != "output" || r.Think != 2 || r.Output != 2 {
		t.Errorf("moved in its answer: %+v", r)
	}
}

package engine

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/serve/door/doorpb"
	"meridian/serve/openai"
)

// governedBy is an engine whose every step waits for a decision.
func governedBy(t *testing.T, o Options, g *fakeGovernor) *Engine {
	t.Helper()
	o.Governor = g
	if g.decide != nil {
		o.GovernorWait = patience
	}
	if g.terms == nil {
		g.terms = thinkingTerms(t)
	}
	return join(t, nil, o)
}

// governedAt is such an engine in a cell.
func governedAt(t *testing.T, c *cell, o Options, g *fakeGovernor) (*Engine, *testDoor) {
	t.Helper()
	o.Governor, o.GovernorWait, g.terms = g, patience, thinkingTerms(t)
	return joinAt(t, c, o)
}

func nothing(*doorpb.Step) *doorpb.Decision { return &doorpb.Decision{} }

// What a governor is told is what the engine's clients are.
func TestStepsAreToldWhole(t *testing.T) {
	g := newFakeGovernor(nil, nothing)
	e := governedBy(t, Options{Reasoning: true, BlockTokens: 8, Blocks: 24}, g)
	most := 7
	want := make(map[string][][]uint32)
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, r := range variants() {
		r.ID, r.Salt = name, name
		if name == "greedy" {
			r.MaxThinkTokens = &most
		}
		all.Add(1)
		go func() {
			defer all.Done()
			answers, _ := ask(t, e, r)
			mu.Lock()
			defer mu.Unlock()
			for _, a := range answers {
				want[name] = append(want[name], a.Tokens)
			}
		}()
	}
	all.Wait()
	g.check(t)
	got := make(map[string][][]uint32)
	slices.SortFunc(g.over, func(a, b *toldSequence) int { return int(a.number) - int(b.number) })
	stops := 0
	for _, q := range g.over {
		got[q.id] = append(got[q.id], q.generated)
		stops += q.stops
		if p := variants()[q.id].Prompts[0]; !slices.Equal(q.tail, p) || q.prompt != len(p) || (q.cap == uint32(most)) != (q.id == "greedy") {
			t.Errorf("%+v", q)
		}
		if q.kv != q.prompt+len(q.generated)-1 {
			t.Errorf("%s has the KV of %d tokens, of %d and %d", q.id, q.kv, q.prompt, len(q.generated))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c := e.Metrics(); c.Preempted != uint64(stops) || stops == 0 || c.Told == 0 || c.Decided == 0 || c.Late != 0 {
		t.Errorf("%d stops told: %+v", stops, c)
	}
}

// The end of a thought stands right behind the token after which it was decided, and what
// follows is what would if the thought had been that long.
func TestForcedEndStandsWhereItWasDecided(t *testing.T) {
	alone := join(t, nil, Options{Reasoning: true})
	for name, r := range map[string]Request{
		"greedy":    {Sampling: Sampling{}},
		"sampled":   {Sampling: Sampling{Temperature: 1, Seed: 5}},
		"penalties": {Sampling: Sampling{Temperature: 1, Seed: 6, FrequencyPenalty: 0.5}, Logprobs: true},
		"two":       {Sampling: Sampling{Temperature: 1, Seed: 7}, N: 2},
	} {
		r.Prompts, r.MaxTokens, r.SplitThought, r.IgnoreEOS = [][]uint32{prompt(3, 20)}, 50, true, true
		for _, after := range []int{1, 2, 13, 29} {
			long := 30
			g := newFakeGovernor(nil, nil)
			g.decide = func(s *doorpb.Step) *doorpb.Decision {
				d := &doorpb.Decision{}
				for _, number := range s.GetSequences() {
					if q := g.live[number]; q != nil && len(q.generated) == after+1 {
						d.Force = append(d.Force, &doorpb.Force{Sequence: number, Tokens: g.terms.GetEndTokens(), Reason: "converged"})
					}
				}
				return d
			}
			e := governedBy(t, Options{Reasoning: true}, g)
			r.ThinkTokens = &after
			want, _ := ask(t, alone, r)
			r.ThinkTokens = &long
			got, result := ask(t, e, r)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, ended after %d: %s", name, after, diff)
			}
			if result.Report.ForcedThinkEnd != openai.ForcedConverged || result.Usage.OutputDetails.ReasoningTokens != after*max(1, r.N) {
				t.Errorf("%s: %+v %+v", name, result.Report, result.Usage.OutputDetails)
			}
			g.check(t)
		}
	}
}

// A thought is not longer than its request lets it be, with any governor and without one.
func TestThoughtsAreCapped(t *testing.T) {
	alone := join(t, nil, Options{Reasoning: true})
	long, most := 25, 9
	r := Request{Prompts: [][]uint32{prompt(4, 11)}, MaxTokens: 40, SplitThought: true, IgnoreEOS: true, ThinkTokens: &most}
	want, result := ask(t, alone, r)
	if result.Report.ForcedThinkEnd != "" {
		t.Errorf("%+v", result.Report)
	}
	r.ThinkTokens, r.MaxThinkTokens = &long, &most
	open := slices.Concat(r.Prompts[0], []uint32{alone.source.thinkStart.id})
	for name, terms := range map[string]*doorpb.GovernorTerms{
		"alone": nil, "governed": thinkingTerms(t), "the governor's is less": {MaxThinkTokens: uint32(most), EndTokens: alone.source.thoughts.Force()}, "no end": {},
	} {
		e := alone
		if terms != nil {
			e = governedBy(t, Options{Reasoning: true}, newFakeGovernor(terms, nil))
		}
		if terms.GetMaxThinkTokens() > 0 {
			r.MaxThinkTokens = &long
		} else {
			r.MaxThinkTokens = &most
		}
		got, result := ask(t, e, r)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if result.Report.ForcedThinkEnd != openai.ForcedHardCap {
			t.Errorf("%s: %+v", name, result.Report)
		}
	}
	// Resumed in the middle, it has as much left as it had.
	r.MaxThinkTokens, r.Resume = &most, want[0].Tokens[:5]
	if got, _ := ask(t, alone, r); !slices.Equal(got[0].Tokens, want[0].Tokens[5:]) {
		t.Errorf("resumed: %v, want %v", got[0].Tokens, want[0].Tokens[5:])
	}
	// One that its prompt has opened may be ended before its first token.
	none := 0
	plain := join(t, nil, Options{})
	got, _ := ask(t, plain, Request{Prompts: [][]uint32{open}, MaxTokens: 5, IgnoreEOS: true, MaxThinkTokens: &none})
	if got[0].Tokens[0] != plain.source.thinkEnd.id {
		t.Errorf("%v", got[0].Tokens)
	}
}

// anyhow decides at random, among it what makes no sense.
func anyhow(g *fakeGovernor, dice *rand.Rand) func(*doorpb.Step) *doorpb.Decision {
	return func(*doorpb.Step) *doorpb.Decision {
		d := &doorpb.Decision{}
		for _, number := range slices.Sorted(maps.Keys(g.live)) {
			switch dice.IntN(12) {
			case 0, 1:
				d.Pause = append(d.Pause, number)
			case 2, 3, 4, 5:
				d.Resume = append(d.Resume, number)
			case 6, 7, 8:
				d.Order = append(d.Order, number)
				d.OrderTokens = append(d.OrderTokens, dice.Uint32N(20))
			case 9:
				d.Fork = append(d.Fork, number)
			case 10:
				if dice.IntN(4) == 0 {
					d.Preempt = append(d.Preempt, &doorpb.Preempt{Sequence: number})
				}
			}
		}
		dice.Shuffle(len(d.Order), func(i, j int) { d.Order[i], d.Order[j] = d.Order[j], d.Order[i] })
		d.Pause, d.Order = append(d.Pause, 1<<40), append(d.Order, 1<<41)
		d.Fork, d.Preempt = append(d.Fork, 0), append(d.Preempt, &doorpb.Preempt{Sequence: 1 << 42})
		d.Force = append(d.Force, &doorpb.Force{Sequence: 1, Tokens: []uint32{1 << 30}})
		return d
	}
}

// Whatever a governor decides about who runs, tokens stay the same.
func TestObeyedAnyhowTokensStay(t *testing.T) {
	alone := join(t, nil, Options{Reasoning: true})
	want := make(map[string][]told)
	for name, r := range variants() {
		want[name], _ = ask(t, alone, r)
	}
	for seed := range uint64(4) {
		g := newFakeGovernor(nil, nil)
		g.decide = anyhow(g, rand.New(rand.NewPCG(seed, 9)))
		e := governedBy(t, Options{Reasoning: true, BlockTokens: 8, Blocks: 30}, g)
		var all sync.WaitGroup
		for name, r := range variants() {
			r.ID, r.Salt = name, name
			all.Add(1)
			go func() {
				defer all.Done()
				if got, _ := ask(t, e, r); cmp.Diff(want[name], got) != "" {
					t.Errorf("seed %d, %s: %s", seed, name, cmp.Diff(want[name], got))
				}
			}()
		}
		all.Wait()
		g.check(t)
		idle(t, e)
		if c := e.Metrics(); c.Stopped == 0 || c.Forked == 0 {
			t.Errorf("%+v", c)
		}
	}
}

// pauseAll stops everybody that it hears of.
func pauseAll(s *doorpb.Step) *doorpb.Decision {
	d := &doorpb.Decision{Pause: slices.Clone(s.GetSequences())}
	return d
}

// A governor that stops all requests and goes, or is silent, or does not let them on, stops none for long.
func TestServesOnWithoutItsGovernor(t *testing.T) {
	r := Request{Prompts: [][]uint32{prompt(5, 20)}, MaxTokens: 8, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	want, _ := ask(t, join(t, nil, Options{}), r)
	for name, c := range map[string]struct {
		steps int // that it decides about
		lost  bool
	}{"lost": {3, true}, "silent": {3, false}, "stubborn": {1 << 30, false}} {
		g := newFakeGovernor(nil, nil)
		stalled := make(chan struct{})
		decided := 0
		g.decide = func(s *doorpb.Step) *doorpb.Decision {
			if decided++; decided > c.steps {
				return nil
			}
			if decided == 3 {
				close(stalled)
			}
			return pauseAll(s)
		}
		e := governedBy(t, Options{}, g)
		e.post(func() { e.options.GovernorWait = time.Millisecond })
		ctx := within(t)
		stream, err := e.Submit(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		if c.lost {
			<-stalled
			g.lose()
		}
		if got, _, err := readAll(ctx, stream, 1); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%s: %v %s", name, err, cmp.Diff(want, got))
		}
		if counters := e.Metrics(); (counters.FailedOpen > 0) == c.lost {
			t.Errorf("%s: %+v", name, counters)
		}
	}
}

// impatient has a decision whenever the engine takes one, though no step was told.
type impatient struct {
	*fakeGovernor
	again func(live []uint64) *doorpb.Decision
}

func (g impatient) Take(time.Duration) []*doorpb.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.again(slices.Sorted(maps.Keys(g.live)))
	d.Step = g.number
	return []*doorpb.Decision{d}
}

// What an engine tells of its blocks is what they take in its memory.
func TestBlockBytesAreTold(t *testing.T) {
	e := join(t, nil, Options{Blocks: 24})
	lent := uint64(0)
	for _, s := range e.sections() {
		lent += s.Size()
	}
	if about := e.aboutSteps(); about.GetBlockBytes() == 0 || about.GetBlockBytes()*uint64(about.GetBlocks()) != lent {
		t.Errorf("%d blocks of %d bytes are told, and %d bytes lent", about.GetBlocks(), about.GetBlockBytes(), lent)
	}
}

// lagging decides about the step before the last one alone.
type lagging struct {
	*fakeGovernor
	late uint64 // as the last Step tells
}

func (g *lagging) Send(s *doorpb.Step) bool {
	g.mu.Lock()
	g.late = s.GetLate()
	g.mu.Unlock()
	return g.fakeGovernor.Send(s)
}

func (g *lagging) Take(time.Duration) []*doorpb.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.number < 2 {
		return nil
	}
	return []*doorpb.Decision{{Step: g.number - 1}}
}

// Decisions that are always a step late are told as such, with the step after.
func TestLateDecisionsAreTold(t *testing.T) {
	g := &lagging{fakeGovernor: newFakeGovernor(thinkingTerms(t), nil)}
	e := join(t, nil, Options{Governor: g})
	ask(t, e, Request{Prompts: [][]uint32{prompt(5, 20)}, MaxTokens: 12, IgnoreEOS: true})
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := e.Metrics(); g.late < 8 || g.late > c.Late {
		t.Errorf("%d were told as late, of %d", g.late, c.Late)
	}
}

// A governor that stops all requests anew before each plan keeps none from its next token.
func TestServesOnThoughStoppedEachPlan(t *testing.T) {
	r := Request{Prompts: [][]uint32{prompt(5, 60)}, MaxTokens: 4, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	want, _ := ask(t, join(t, nil, Options{}), r)
	preempts := func(live []uint64, swap bool) *doorpb.Decision {
		d := &doorpb.Decision{Order: live}
		for _, number := range live {
			d.Preempt = append(d.Preempt, &doorpb.Preempt{Sequence: number, Swap: swap})
			d.OrderTokens = append(d.OrderTokens, 1)
		}
		return d
	}
	for name, again := range map[string]func([]uint64) *doorpb.Decision{
		"pauses":   func(live []uint64) *doorpb.Decision { return &doorpb.Decision{Pause: live} },
		"preempts": func(live []uint64) *doorpb.Decision { return preempts(live, false) },
		"swaps and copies nothing": func(live []uint64) *doorpb.Decision {
			d := preempts(live, true)
			for _, number := range live {
				d.CopyOut = append(d.CopyOut, &doorpb.CopyOut{Sequence: number})
			}
			return d
		},
	} {
		g := newFakeGovernor(thinkingTerms(t), nil)
		e, _ := joinAt(t, keeping(t, 16), Options{BlockTokens: 8, Blocks: 64, Governor: impatient{g, again}})
		got, _ := ask(t, e, r)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if c := e.Metrics(); (c.FailedOpen > 0) != (name != "preempts") || (c.Unheeded > 0) != (name != "pauses") {
			t.Errorf("%s: %+v", name, c)
		}
		g.check(t)
	}
}

// Who governs anew is told of everybody that lives, with all that it has said.
func TestAllSequencesAreToldAgain(t *testing.T) {
	r := Request{Prompts: [][]uint32{prompt(5, 40)}, N: 2, MaxTokens: 50, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	want, _ := ask(t, join(t, nil, Options{}), r)
	g := newFakeGovernor(nil, nothing)
	e := governedBy(t, Options{}, g)
	reached := make(chan struct{})
	g.mu.Lock()
	g.decide = func(s *doorpb.Step) *doorpb.Decision {
		for _, q := range g.live {
			if len(q.generated) == 20 && g.connection == 1 {
				g.down, g.decisions = true, nil
				clear(g.live)
				close(reached)
				return nil
			}
		}
		return &doorpb.Decision{}
	}
	g.mu.Unlock()
	ctx := within(t)
	stream, err := e.Submit(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	g.back()
	got, _, err := readAll(ctx, stream, 2)
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(want, got))
	}
	g.check(t)
	for _, q := range g.over {
		if !slices.ContainsFunc(want, func(a told) bool { return slices.Equal(a.Tokens, q.generated) }) || q.kv != q.prompt+len(q.generated)-1 {
			t.Errorf("%+v", q)
		}
	}
	if len(g.over) != 2 {
		t.Errorf("%d have ended", len(g.over))
	}
}

// Every question for a fork is answered, with nothing where there was no room for it or the
// sequence lost its blocks.
func TestEveryForkIsAnswered(t *testing.T) {
	think := 40
	r := Request{ID: "a", Prompts: [][]uint32{prompt(5, 60)}, MaxTokens: 42, IgnoreEOS: true, ThinkTokens: &think}
	for name, c := range map[string]struct {
		blocks  int
		preempt bool
		known   bool
	}{"measured": {64, false, true}, "no blocks": {13, false, false}, "preempted": {64, true, false}} {
		g := newFakeGovernor(nil, nil)
		asked := 0
		g.decide = func(*doorpb.Step) *doorpb.Decision {
			d := &doorpb.Decision{}
			for _, q := range g.live {
				if n := len(q.generated); n != 35 && n != 38 || asked > len(g.forks[q.number]) {
					continue
				}
				asked++
				d.Fork = append(d.Fork, q.number)
				if c.preempt { // before the step that would measure
					d.Preempt = append(d.Preempt, &doorpb.Preempt{Sequence: q.number})
				}
			}
			return d
		}
		ask(t, governedBy(t, Options{Reasoning: true, BlockTokens: 8, Blocks: c.blocks}, g), r)
		g.check(t)
		for _, all := range g.forks {
			for _, nats := range all {
				if known := nats == nats; known != c.known {
					t.Errorf("%s: %v", name, nats)
				}
			}
			if len(all) != asked || asked != 2 {
				t.Errorf("%s: %d asked, %d answered", name, asked, len(all))
			}
		}
		if len(g.forks) != 1 {
			t.Errorf("%s: %v", name, g.forks)
		}
	}
}

package engine

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/engine/batch"
	"meridian/internal/until"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// swapper sends sequences away and has them back, at random, step by step as a governor does.
func swapper(g *fakeGovernor, dice *rand.Rand) func(*doorpb.Step) *doorpb.Decision {
	return func(s *doorpb.Step) *doorpb.Decision {
		d := &doorpb.Decision{}
		for _, stopped := range s.GetStopped() {
			if q := g.live[stopped.GetSequence()]; q != nil && !stopped.GetLost() && q.asked == "stop" {
				q.asked = "copy"
				d.CopyOut = append(d.CopyOut, &doorpb.CopyOut{Sequence: q.number, Blocks: slices.Clone(q.blocks)})
			}
		}
		for _, c := range s.GetCopied() {
			if q := g.live[c.GetSequence()]; q != nil && q.asked == "copy" {
				if !c.GetWhole() {
					q.asked = ""
					d.Resume = append(d.Resume, q.number)
					continue
				}
				q.asked, q.wait = "away", dice.IntN(4)
				d.Evict = append(d.Evict, q.blocks...)
			}
		}
		for _, c := range s.GetRecalled() {
			q := g.live[c.GetSequence()]
			if q == nil {
				continue
			}
			q.asked = ""
			d.Resume = append(d.Resume, q.number)
		}
		for _, number := range slices.Sorted(maps.Keys(g.live)) {
			q := g.live[number]
			switch {
			case q.asked == "away" && q.wait > 0:
				q.wait--
			case q.asked == "away":
				q.asked = "recall"
				d.Recall = append(d.Recall, number)
			case q.asked == "" && len(q.generated) > 1 && !slices.Contains(d.Resume, number) && dice.IntN(12) == 0:
				q.asked = "stop"
				d.Preempt = append(d.Preempt, &doorpb.Preempt{Sequence: number, Swap: true})
			}
		}
		return d
	}
}

// Sequences that leave for the cell's cache and come back say what they would have said.
func TestSwappedTokensStay(t *testing.T) {
	alone := join(t, nil, Options{Reasoning: true})
	requests := variants()
	want := make(map[string][]told)
	for name, r := range requests {
		want[name], _ = ask(t, alone, r)
	}
	for seed, trouble := range []trouble{{}, {}, {refuse: 20, fail: 20, late: 20}, {refuse: 10, fail: 10, silence: 5, mute: 5}} {
		world := keeping(t, 16)
		trouble.dice = rand.New(rand.NewPCG(uint64(seed), 3))
		world.mu.Lock()
		world.trouble = trouble
		world.mu.Unlock()
		g := newFakeGovernor(nil, nil)
		g.decide = swapper(g, rand.New(rand.NewPCG(uint64(seed), 9)))
		e, _ := governedAt(t, world, Options{Reasoning: true, BlockTokens: 8, Blocks: 40}, g)
		var all sync.WaitGroup
		for name, r := range requests {
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
		c := idle(t, e).Counters
		fetched := world.finds()
		t.Logf("seed %d: %d blocks copied, %d recalled, %d found by the cell, %d preempted", seed, c.CopiedOut, c.Recalled, fetched, c.Preempted)
		if trouble.refuse == 0 && (c.CopiedOut == 0 || c.Recalled == 0) {
			t.Errorf("%+v", c)
		}
	}
}

// sendAway has a governor send the request "a" away after ten tokens, which away tells of, and
// recall it when it was overtaken.
func sendAway(g *fakeGovernor) (away <-chan struct{}, overtaken func()) {
	gone, late := make(chan struct{}), false
	g.decide = func(s *doorpb.Step) *doorpb.Decision {
		d := &doorpb.Decision{}
		for _, q := range g.live {
			switch {
			case q.id != "a":
			case q.asked == "" && len(q.generated) == 10:
				q.asked = "stop"
				d.Preempt = append(d.Preempt, &doorpb.Preempt{Sequence: q.number, Swap: true})
			case q.asked == "stop" && len(s.GetStopped()) > 0:
				q.asked = "copy"
				d.CopyOut = append(d.CopyOut, &doorpb.CopyOut{Sequence: q.number, Blocks: slices.Clone(q.blocks)})
			case q.asked == "copy" && len(s.GetCopied()) > 0:
				q.asked = "away"
				d.Evict = slices.Clone(q.blocks)
				close(gone)
			case q.asked == "away" && late:
				q.asked = "recall"
				d.Recall = append(d.Recall, q.number)
			case q.asked == "recall" && len(s.GetRecalled()) > 0:
				q.asked = "back"
				d.Resume = append(d.Resume, q.number)
			}
		}
		return d
	}
	return gone, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		late = true
	}
}

// What others have used the blocks of meanwhile comes back from the cell: all of it but what
// is behind the last full unit.
func TestSwappedBlocksComeFromTheCell(t *testing.T) {
	a := Request{ID: "a", Prompts: [][]uint32{prompt(5, 100)}, MaxTokens: 30, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	b := Request{ID: "b", Prompts: [][]uint32{prompt(6, 150)}, MaxTokens: 10, IgnoreEOS: true, Salt: "b"}
	want, _ := ask(t, join(t, nil, Options{}), a)
	g := newFakeGovernor(nil, nil)
	away, overtaken := sendAway(g)
	world := keeping(t, 16)
	e, _ := governedAt(t, world, Options{BlockTokens: 8, Blocks: 24}, g)
	ctx := within(t)
	stream, err := e.Submit(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	<-away
	ask(t, e, b)
	overtaken()
	got, _, err := readAll(ctx, stream, 1)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	g.check(t)
	c := idle(t, e).Counters
	// 109 of its tokens had their KV, and 6 units of 16 of them were kept.
	if again := c.Computed - 109 - 20 - 159; c.Recalled != 1 || world.finds() != 1 || again != 13 {
		t.Errorf("%d tokens were computed again, %d found: %+v", again, world.finds(), c)
	}
}

// Where the cell keeps nothing, a swap is a preemption; where the governor is lost while
// a sequence is copied out, it comes back.
func TestSwapWithoutAStoreOrAGovernor(t *testing.T) {
	r := Request{Prompts: [][]uint32{prompt(5, 100)}, MaxTokens: 30, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	want, _ := ask(t, join(t, nil, Options{}), r)
	for _, name := range []string{"no store", "governor lost", "agent lost"} {
		world := keeping(t, 16)
		if name == "no store" {
			world = newCell()
		}
		g := newFakeGovernor(nil, nil)
		swaps := swapper(g, rand.New(rand.NewPCG(1, 9)))
		var d *testDoor
		lost := false
		g.decide = func(s *doorpb.Step) *doorpb.Decision {
			decision := swaps(s)
			for _, q := range g.live {
				if q.asked != "away" || lost {
					continue
				}
				q.wait, lost = 2, true
				switch name {
				case "governor lost":
					g.down, g.decisions = true, nil
					clear(g.live)
				case "agent lost":
					d.soon(func() { d.lose(true) })
				}
			}
			return decision
		}
		var e *Engine
		e, d = governedAt(t, world, Options{BlockTokens: 8, Blocks: 64}, g)
		got, _ := ask(t, e, r)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if c := idle(t, e).Counters; lost == (name == "no store") || (c.Stopped > 0) != (name == "no store") {
			t.Errorf("%s: %v %+v", name, lost, c)
		}
		g.check(t)
	}
}

// A sequence that is on its way back when its governor is lost arrives, however far it is.
func TestGovernorLostOnTheWayBack(t *testing.T) {
	a := Request{ID: "a", Prompts: [][]uint32{prompt(5, 100)}, MaxTokens: 30, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	b := Request{ID: "b", Prompts: [][]uint32{prompt(6, 150)}, MaxTokens: 10, IgnoreEOS: true, Salt: "b"}
	want, _ := ask(t, join(t, nil, Options{}), a)
	searches := func(_ *Engine, c *choice) bool { return c.swap != nil && c.swap.search != nil }
	for name, reached := range map[string]func(*Engine, *choice) bool{
		"looked for": searches,
		"not waited for any more": func(e *Engine, c *choice) bool {
			if !searches(e, c) {
				return false
			}
			e.located(c, c.swap, door.Found{}, 0)
			return true
		},
		"fetched": func(_ *Engine, c *choice) bool { return c.sequence.State() == batch.Fetching },
	} {
		g := newFakeGovernor(nil, nil)
		away, overtaken := sendAway(g)
		world := keeping(t, 16)
		e, _ := governedAt(t, world, Options{BlockTokens: 8, Blocks: 24}, g)
		ctx := within(t)
		stream, err := e.Submit(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		<-away
		ask(t, e, b)
		hang := make(chan struct{})
		world.mu.Lock()
		world.trouble = trouble{dice: rand.New(rand.NewPCG(1, 3)), slowest: 1_000_000}
		if name != "fetched" {
			world.fakeCache.hang = hang
		}
		world.mu.Unlock()
		overtaken()
		until.True(t, name, func() (lost bool) { // with pauses: the engine takes all that is posted before it goes on
			looked := make(chan bool, 1)
			e.post(func() {
				// It may have passed by on a machine that stood still meanwhile.
				there := len(e.known) == 0 || reached(e, e.known[0])
				if there {
					g.lose()
				}
				looked <- there
			})
			select {
			case lost = <-looked:
			case <-ctx.Done():
				t.Fatalf("%s: never", name)
			}
			return lost
		})
		close(hang)
		if got, _, err := readAll(ctx, stream, 1); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%s: %v %s", name, err, cmp.Diff(want, got))
		}
	}
}

// What a governor repeats is done and answered once.
func TestRepeatedDecisionsAreAnsweredOnce(t *testing.T) {
	r := Request{Prompts: [][]uint32{prompt(5, 60)}, MaxTokens: 8, IgnoreEOS: true}
	g := newFakeGovernor(nil, nil)
	var stopped, recalled, copied, blocks int
	g.decide = func(s *doorpb.Step) *doorpb.Decision {
		d := &doorpb.Decision{}
		for _, c := range s.GetRecalled() {
			recalled++
			blocks += len(c.GetBlocks())
		}
		for _, c := range s.GetCopied() {
			copied += len(c.GetBlocks())
		}
		stopped = max(stopped, len(s.GetStopped()))
		for _, q := range g.live {
			switch len(q.generated) {
			case 2, 3: // as it believes: no sequence was stopped to be copied out
				d.Evict = slices.Repeat(q.blocks, 5)
			case 4:
				q.asked = "recall"
				d.Recall = slices.Repeat([]uint64{q.number}, 5)
			case 5:
				d.CopyOut = append(d.CopyOut, &doorpb.CopyOut{Sequence: q.number, Blocks: slices.Repeat(q.blocks, 5)})
			case 6:
				d.Preempt = slices.Repeat([]*doorpb.Preempt{{Sequence: q.number, Swap: true}}, 5)
			}
		}
		return d
	}
	e, _ := governedAt(t, keeping(t, 16), Options{BlockTokens: 8, Blocks: 64}, g)
	ask(t, e, r)
	g.check(t)
	until.True(t, "copies are told of", func() bool { // which may come after the answer
		g.mu.Lock()
		defer g.mu.Unlock()
		return copied > 0
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if stopped != 1 || recalled != 1 || blocks != 8 || copied != 8 {
		t.Errorf("stopped %d times in one step, %d recalls of %d blocks, %d copied", stopped, recalled, blocks, copied)
	}
}

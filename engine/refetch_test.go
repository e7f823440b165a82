package engine

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/serve/door/doorpb"
	"meridian/serve/openai"
)

// copiedAndPreempted has a governor copy the blocks of the request "a" out after ten tokens,
// take them then, and let it go on when it was overtaken; ordered: by naming it in the order.
func copiedAndPreempted(g *fakeGovernor, ordered bool) (gone <-chan struct{}, overtaken func()) {
	lost, late := make(chan struct{}), false
	g.decide = func(s *doorpb.Step) *doorpb.Decision {
		d := &doorpb.Decision{}
		for _, q := range g.live {
			switch {
			case q.id != "a":
			case q.wait == 0 && len(q.generated) == 10:
				q.wait = 1
				d.Pause = append(d.Pause, q.number)
				d.CopyOut = append(d.CopyOut, &doorpb.CopyOut{Sequence: q.number, Blocks: slices.Clone(q.blocks)})
			case q.wait == 1 && len(s.GetCopied()) > 0:
				q.wait = 2
				d.Preempt = append(d.Preempt, &doorpb.Preempt{Sequence: q.number})
				d.Pause = append(d.Pause, q.number)
				close(lost)
			case q.wait == 2 && late:
				q.wait = 3
				d.Resume = append(d.Resume, q.number)
			}
			if ordered && q.wait != 2 {
				d.Order, d.OrderTokens = append(d.Order, q.number), append(d.OrderTokens, 1)
			}
		}
		return d
	}
	return lost, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		late = true
	}
}

// A thought that was copied out comes back from the cell after its sequence lost its blocks,
// although the governor does not recall it. Where the cell is slow, refuses, or is gone, it is computed anew.
func TestPreemptedBlocksComeFromTheCell(t *testing.T) {
	a := Request{ID: "a", Prompts: [][]uint32{prompt(5, 100)}, MaxTokens: 30, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	b := Request{ID: "b", Prompts: [][]uint32{prompt(6, 150)}, MaxTokens: 10, IgnoreEOS: true, Salt: "b"}
	want, _ := ask(t, join(t, nil, Options{}), a)
	for name, regained := range map[string]uint64{"found": 1, "ordered": 1, "slow": 0, "refused": 0, "broken": 0, "gone": 0} {
		g := newFakeGovernor(nil, nil)
		gone, overtaken := copiedAndPreempted(g, name == "ordered")
		world, hang := keeping(t, 16), make(chan struct{})
		e, d := governedAt(t, world, Options{BlockTokens: 8, Blocks: 24}, g)
		ctx := within(t)
		stream, err := e.Submit(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		<-gone
		ask(t, e, b) // its blocks are what "a" had
		world.mu.Lock()
		world.trouble.dice = rand.New(rand.NewPCG(1, 3))
		switch name {
		case "slow":
			world.fakeCache.hang = hang
		case "refused":
			world.refuse = 100
		case "broken":
			world.fail = 100
		}
		world.mu.Unlock()
		if name == "gone" {
			d.lose(false)
		}
		overtaken()
		got, _, err := readAll(ctx, stream, 1)
		close(hang)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
		g.check(t)
		c := idle(t, e).Counters
		// 109 of its tokens had their KV, and 6 units of 16 of them were kept.
		again := c.Computed - 109 - 20 - 159
		if c.Regained != regained || (again == 13) != (regained > 0) || c.Stopped != 1 {
			t.Errorf("%s: %d tokens were computed again: %+v", name, again, c)
		}
	}
}

// What the engine takes from its youngest for want of blocks comes from the cell, too.
func TestWhatTheYoungestLosesComesFromTheCell(t *testing.T) {
	a := Request{Prompts: [][]uint32{prompt(5, 30)}, MaxTokens: 320, IgnoreEOS: true, Salt: "a"}
	b := Request{Prompts: [][]uint32{prompt(6, 90)}, MaxTokens: 200, IgnoreEOS: true, Sampling: Sampling{Temperature: 1, Seed: 2}}
	alone := join(t, nil, Options{})
	wantA, _ := ask(t, alone, a)
	wantB, _ := ask(t, alone, b)
	e := join(t, keeping(t, 16), Options{BlockTokens: 8, Blocks: 48, patience: time.Minute})
	ctx := within(t)
	older, err := e.Submit(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() { // else it waits for its reader, with what the other needs
		if got, _, err := readAll(ctx, older, 1); err != nil || cmp.Diff(wantA, got) != "" {
			t.Errorf("%v %s", err, cmp.Diff(wantA, got))
		}
	})
	if got, result := ask(t, e, b); cmp.Diff(wantB, got) != "" || result.Report.KV != openai.KVLocal || result.Usage.PromptDetails.CachedTokens != 0 {
		t.Errorf("%s %+v", cmp.Diff(wantB, got), result)
	}
	read.Wait()
	if c := idle(t, e).Counters; c.Preempted == 0 || c.Regained != 1 {
		t.Errorf("%+v", c)
	}
}

// Whatever the cell does, sequences that lose their blocks over and over say what they would
// have said.
func TestRegainedTokensStay(t *testing.T) {
	alone := join(t, nil, Options{Reasoning: true})
	requests := variants()
	want := make(map[string][]told)
	for name, r := range requests {
		r.Prompts = [][]uint32{append(prompt(17, 100), r.Prompts[0]...)}
		requests[name] = r
		want[name], _ = ask(t, alone, r)
	}
	for seed, trouble := range []trouble{{}, {refuse: 20, fail: 20, late: 20}, {refuse: 10, fail: 10, silence: 5, mute: 5}} {
		world := keeping(t, 16)
		dice := rand.New(rand.NewPCG(uint64(seed), 9))
		trouble.dice = rand.New(rand.NewPCG(uint64(seed), 3))
		world.mu.Lock()
		world.trouble = trouble
		world.mu.Unlock()
		g := newFakeGovernor(nil, nil)
		g.decide = func(*doorpb.Step) *doorpb.Decision {
			d := &doorpb.Decision{}
			for _, q := range g.live {
				switch dice.IntN(20) {
				case 0, 1:
					d.CopyOut = append(d.CopyOut, &doorpb.CopyOut{Sequence: q.number, Blocks: slices.Clone(q.blocks)})
				case 2, 3: // it waits, and others take what it had
					d.Preempt, d.Pause = append(d.Preempt, &doorpb.Preempt{Sequence: q.number}), append(d.Pause, q.number)
				case 4:
					d.Resume = append(d.Resume, q.number)
				}
			}
			return d
		}
		e, _ := governedAt(t, world, Options{Reasoning: true, BlockTokens: 8, Blocks: 40}, g)
		var all sync.WaitGroup
		for name, r := range requests {
			r.ID, r.Salt = name, name
			all.Go(func() {
				if got, _ := ask(t, e, r); cmp.Diff(want[name], got) != "" {
					t.Errorf("seed %d, %s: %s", seed, name, cmp.Diff(want[name], got))
				}
			})
		}
		all.Wait()
		g.check(t)
		c := idle(t, e).Counters
		if t.Logf("seed %d: %d lost their blocks, %d regained some", seed, c.Stopped, c.Regained); trouble.refuse == 0 && (c.Regained == 0 || c.Stopped == 0) {
			t.Errorf("%+v", c)
		}
	}
}

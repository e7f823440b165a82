package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"meridian/decide/policy"
	"meridian/prove/replay/workload"
)

func newPolicy(t testing.TB, name string) policy.Policy {
	t.Helper()
	p, err := policy.New(name, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func replayed(t testing.TB, c Config, p string, requests []workload.Request) *Result {
	t.Helper()
	r, err := Run(t.Context(), c, &workload.List{Requests: requests}, newPolicy(t, p))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// simple is a profile that can be computed by hand: a step takes 1 ms, a token of
// a prompt 10 µs more.
func simple() Profile {
	return Profile{
		Name: "simple", StepNs: 1e6, Dense: []Point{{0, 0}, {1, 0}, {1001, 1e7}}, KVBytesPerToken: 1000,
		BlockTokens: 16, Blocks: 10_000, MaxTokens: 1000, MaxSequences: 64,
	}
}

func TestOneRequestAlone(t *testing.T) {
	p := simple()
	p.ContextNs = 100
	r := replayed(t, Config{Profile: p}, "stock", []workload.Request{{At: time.Second, Prompt: 1500, Think: 10, Output: 5}})
	// Two steps compute the prompt: 1000 tokens take 1 ms + 999 · 10 µs, 500 take 1 ms
	// + 499 · 10 µs. Every token after the first attends to one more, at 100 ns each.
	prefill := 2e6 + (999+499)*1e4
	if got := r.Latency.TTFT.Max * 1e9; got != prefill {
		t.Errorf("TTFT %g ns, want %g", got, prefill)
	}
	think, output := 0.0, 0.0
	for i := range 14 {
		step := 1e6 + 100*float64(1501+i)
		if i < 9 {
			think += step
		} else {
			output += step
		}
	}
	first := 1e6 + 100*1510.0
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"TTFVT", r.Latency.TTFVT.Max, prefill + think + first},
		{"TTOT", r.Latency.TTOT.Max, first},
		{"E2E", r.Latency.E2E.Max, prefill + think + output},
		{"slowdown", r.Latency.Slowdown.Max * 1e9, 1e9},
	} {
		if got := c.got * 1e9; c.name != "slowdown" && got != c.want || c.name == "slowdown" && c.got != c.want {
			t.Errorf("%s %g ns, want %g", c.name, got, c.want)
		}
	}
	if r.Tokens != (Tokens{Prompt: 1500, Think: 10, Output: 5}) || r.SLOAttainment != 1 || r.Latency.ThinkITL.Count != 9 || r.Latency.AnswerITL.Count != 4 {
		t.Errorf("%+v, SLO %g, %d and %d gaps", r.Tokens, r.SLOAttainment, r.Latency.ThinkITL.Count, r.Latency.AnswerITL.Count)
	}
}

// someWorkload draws requests that press on a small engine.
func someWorkload(t *rapid.T, blockTokens int32) []workload.Request {
	d := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	gap := rapid.SampledFrom([]float64{1e6, 5e6, 20e6, 100e6}).Draw(t, "gap")
	var requests []workload.Request
	at := time.Duration(0)
	for range rapid.IntRange(1, 50).Draw(t, "requests") {
		at += time.Duration(d.ExpFloat64() * gap)
		q := workload.Request{At: at, Prompt: 1 + d.Int32N(700), Output: d.Int32N(80), Tenant: d.Int32N(3)}
		if d.IntN(2) == 0 {
			q.Think = 1 + d.Int32N(300)
		}
		if d.IntN(3) == 0 {
			q.PrefixTokens = 4 * blockTokens
			family := uint64(d.IntN(4))
			for chunk := range uint64(q.Prompt/q.PrefixTokens) + 1 {
				q.Prefix = append(q.Prefix, family<<32|chunk)
			}
		}
		requests = append(requests, q)
	}
	return requests
}

// someConfig draws a cell, with times that are not round.
func someConfig(t *rapid.T) Config {
	p := simple()
	p.ContextNs, p.PairNs, p.SequenceNs = 37.25, 0.5, 999.125
	p.BlockTokens = rapid.SampledFrom([]int32{1, 4, 16}).Draw(t, "block")
	p.Blocks = rapid.Int32Range(1200, 6000).Draw(t, "tokens") / p.BlockTokens
	p.MaxSequences = rapid.Int32Range(1, 24).Draw(t, "sequences")
	p.MaxTokens = rapid.SampledFrom([]int32{64, 256, 1000}).Draw(t, "budget")
	c := Config{
		Profile: p, SampleEvery: 50 * time.Millisecond, Seed: 7,
		Offload:     Link{BytesPerSecond: rapid.SampledFrom([]float64{1e6, 1e8}).Draw(t, "link"), Latency: 300 * time.Microsecond},
		HandOff:     Link{BytesPerSecond: 1e7, Latency: time.Millisecond},
		StoreLink:   Link{BytesPerSecond: 1e7, Latency: time.Millisecond},
		CopyThought: rapid.Bool().Draw(t, "copy"), NoOffload: rapid.Bool().Draw(t, "no offload"),
		Window: rapid.SampledFrom([]int{3, 512}).Draw(t, "window"),
	}
	if rapid.Bool().Draw(t, "several") {
		c.Replicas, c.Prefills = rapid.IntRange(1, 3).Draw(t, "replicas"), rapid.IntRange(0, 2).Draw(t, "prefills")
	}
	if rapid.Bool().Draw(t, "store") {
		c.StoreTokens = 3000
	}
	return c
}

func somePolicy(t *rapid.T) policy.Policy {
	p, err := policy.New(rapid.SampledFrom(policy.Names()).Draw(t, "policy"), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Under every policy, in every kind of cell, all requests end, blocks add up at
// every moment, and the same seed gives the same bytes.
func TestAllRequestsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := somePolicy(t)
		c := someConfig(t)
		requests := someWorkload(t, c.Profile.BlockTokens)
		first, err := json.Marshal(ran(t, c, policy, requests))
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(ran(t, c, policy, requests)); !bytes.Equal(first, again) {
			t.Fatalf("the same seed gives\n%s\nand\n%s", first, again)
		}
	})
}

// turning is a policy that names those who decode in an order which changes from
// step to step.
type turning struct{ policy.Policy }

func (p turning) Decide(s *policy.Snapshot, d *policy.Decision) {
	p.Policy.Decide(s, d)
	for _, run := range d.Run {
		if r := &s.Requests[run.Request]; r.State == policy.Waiting || !r.Decodes() {
			return // who is taken in first makes a difference
		}
	}
	if len(d.Run) > 0 && s.Requests[slices.MinFunc(d.Run, func(a, b policy.Allotment) int { return int(a.Request - b.Request) }).Request].Length%2 == 1 {
		slices.Reverse(d.Run)
	}
}

// Plans of many steps are the same steps one by one, in every kind of cell.
func TestMacroStepsEqualSingleSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := somePolicy(t)
		if rapid.Bool().Draw(t, "turning") {
			policy = turning{policy}
		}
		c := someConfig(t)
		requests := someWorkload(t, c.Profile.BlockTokens)
		macro := ran(t, c, policy, requests)
		c.SingleStep = true
		single := ran(t, c, policy, requests)
		macro.Engine.Decisions, single.Engine.Decisions = 0, 0
		if diff := cmp.Diff(single, macro); diff != "" {
			t.Fatalf("one by one, and as plans of many steps:\n%s", diff)
		}
	})
}

// ran replays, and checks what must hold at the end of every replay.
func ran(t *rapid.T, c Config, policy policy.Policy, requests []workload.Request) *Result {
	world, err := newCell(c, &workload.List{Requests: requests}, policy)
	if err != nil {
		t.Fatal(err)
	}
	if err := world.pull(); err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		if more, err = world.turn(); err != nil {
			t.Fatal(err)
		}
		for _, e := range world.engines {
			if problem := e.audit(); problem != "" {
				t.Fatalf("at %v: %s: %s", world.now.duration(), e.id, problem)
			}
		}
	}
	for _, e := range world.engines {
		listed := int32(0)
		for at := e.free.spans[0].newer; at != 0; at = e.free.spans[at].newer {
			listed += e.free.spans[at].blocks
		}
		if e.snap.FreeBlocks != e.snap.Limits.Blocks || listed != e.snap.FreeBlocks || len(e.seqs) > 0 || e.promptTokens != 0 || e.running != 0 || e.waiting != 0 || e.backlog.early != 0 {
			t.Fatalf("%s ends with %d blocks free and %d listed of %d, %d requests, %d tokens of prompts, %d running, %d waiting",
				e.id, e.snap.FreeBlocks, listed, e.snap.Limits.Blocks, len(e.seqs), e.promptTokens, e.running, e.waiting)
		}
	}
	r := world.result()
	if r.Requests.Counted+r.Requests.Refused != int64(len(requests)) {
		t.Fatalf("of %d requests %d ended and %d were refused", len(requests), r.Requests.Counted, r.Requests.Refused)
	}
	return r
}

// audit says what is wrong with an engine's account of blocks.
func (e *engine) audit() string {
	private, shares := int32(0), int32(0)
	lent := hold{}
	for _, other := range e.cell.engines {
		there := slices.Clone(other.seqs)
		for _, own := range other.backlog.of {
			for _, t := range own.tickets[own.head:] {
				there = append(there, t.seq)
			}
		}
		for _, s := range there {
			if s.lender == e {
				lent.blocks, lent.chunks = lent.blocks+s.lent.blocks, lent.chunks+s.lent.chunks
			}
		}
	}
	for i := range e.seqs {
		r, s := &e.snap.Requests[i], e.seqs[i]
		switch r.State {
		case policy.Running, policy.Paused, policy.Recalling:
			h := e.holding(int32(i))
			private, shares = private+h.blocks, shares+h.chunks
			if h.blocks < 0 {
				return fmt.Sprintf("request %d holds %d blocks beside %d chunks", s.number, h.blocks, h.chunks)
			}
		case policy.Leaving:
			private, shares = private+s.leaving.blocks, shares+s.leaving.chunks
		}
	}
	private, shares = private+lent.blocks, shares+lent.chunks
	holders, used := int32(0), int32(0)
	for _, at := range e.cache.byHash {
		holders += e.cache.chunks[at].holders
		if e.cache.chunks[at].holders > 0 {
			used++
		}
	}
	if holders != shares {
		return fmt.Sprintf("chunks have %d holders, and requests hold %d", holders, shares)
	}
	if all := private + used*e.cache.blocks + e.snap.FreeBlocks; all != e.snap.Limits.Blocks {
		return fmt.Sprintf("%d blocks of requests, %d of chunks and %d free ones are %d of %d", private, used*e.cache.blocks, e.snap.FreeBlocks, all, e.snap.Limits.Blocks)
	}
	return ""
}

// What is left of a preempted request's blocks is where it was: nothing is
// fetched for it.
func TestRemainsAreNotFetched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := someConfig(t)
		c.StoreTokens = 0
		requests := someWorkload(t, c.Profile.BlockTokens)
		if r := ran(t, c, somePolicy(t), requests); r.Moved.Store != 0 {
			t.Fatalf("%d bytes came from a store, and there is none", r.Moved.Store)
		}
	})
}

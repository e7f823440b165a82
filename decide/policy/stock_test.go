package policy

import (
	"fmt"
	"testing"

	"meridian/kv"
)

// crowded is an engine with so many that run, and half as many that wait.
func crowded(running int) *world {
	w := newWorld(Limits{Tokens: 8192, Sequences: int32(running), BlockTokens: 16, Blocks: 1 << 20, PreemptMaxFraction: 0.1}, 4)
	for i := range running + running/2 {
		w.arrive(i, int32(i%4), 100, 1000, 500)
		r := &w.s.Requests[i]
		if i >= running {
			continue
		}
		r.State, r.Phase, r.Pending, r.Length, r.Blocks, r.Think = Running, kv.Think, 1, 100+int32(i), 7+int32(i)/16, int32(i)
		if i%3 == 0 {
			r.Phase, r.Output, r.FirstOutput = kv.Output, int32(i%200)+1, w.s.Now
		}
		w.s.FreeBlocks -= r.Blocks
	}
	w.s.FreeBlocks = 40
	return w
}

func decide(t *testing.T, w *world, p Policy) string {
	t.Helper()
	p.Decide(&w.s, &w.d)
	if err := w.check(false); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint("run", w.d.Run)
	for _, v := range w.d.Victims {
		text += fmt.Sprintf(" %s %d %s", v.Reclaim, v.Request, v.Reason)
	}
	return text
}

func TestStock(t *testing.T) {
	w := newWorld(Limits{Tokens: 10, Sequences: 3, BlockTokens: 4, Blocks: 9}, 1)
	for i := range 4 {
		w.arrive(i, 0, 8, 0, 100)
	}
	p := &Stock{}
	for i, want := range []string{
		"run[{0 8} {1 2}]",       // what the step has tokens for
		"run[{0 1} {1 6} {2 3}]", // those who run, then newcomers
		"run[{0 1} {1 1} {2 5}]", // three at most
		"run[{0 1} {1 1} {2 1}]", // 3, 3 and 3 blocks: the last is taken
		"run[{0 1} {1 1} {2 1}]",
		"run[{0 1} {1 1}] recompute 2 last_came", // 13 tokens of the first need a fourth
	} {
		if got := decide(t, w, p); got != want {
			t.Fatalf("step %d: %s, want %s\n%+v", i, got, want, w.s)
		}
		w.apply(20 * Millisecond)
	}
	if r := w.s.Requests[2]; r.State != Waiting || r.Pending != 11 || r.Preemptions != 1 {
		t.Errorf("the victim is %+v", r)
	}
}

// All memory fits k steps, and not k+1.
func TestStockSteps(t *testing.T) {
	for _, c := range []struct{ free, want int32 }{{0, 2}, {1, 4}, {2, 6}, {5, 12}} {
		w := newWorld(Limits{Tokens: 10, Sequences: 2, BlockTokens: 4, Blocks: 99}, 1)
		for i := range 2 {
			w.arrive(i, 0, 2, 0, 100)
			r := &w.s.Requests[i]
			// The first fills its block after two steps, the other after four.
			r.State, r.Phase, r.Pending, r.Length, r.Blocks = Running, kv.Output, 1, int32(2-2*i), 1
		}
		w.s.FreeBlocks = c.free
		var d Decision
		(&Stock{}).Decide(&w.s, &d)
		if d.Steps != c.want {
			t.Errorf("%d free blocks: %d steps, want %d", c.free, d.Steps, c.want)
		}
	}
}

// With ChunkFree prompts get what is free beside those who decode, and no request
// loses its blocks because a prompt has no tokens left.
func TestChunkFree(t *testing.T) {
	for _, name := range []string{"stock", "static-budget", "pascal"} {
		for free, want := range map[bool]string{true: "run[{0 1} {1 40}]", false: "run[{0 1} {1 80} {2 19}]"} {
			w := newWorld(Limits{Tokens: 100, Sequences: 8, BlockTokens: 4, Blocks: 100, PreemptMaxFraction: 0.1}, 1)
			for i := range 3 {
				w.arrive(i, 0, 80, 10, 10)
			}
			w.hold(0, kv.Think, 8, 1, 0)
			for _, r := range []*Request{w.hold(1, kv.Prefill, 8, 0, 0), w.hold(2, kv.Prefill, 8, 0, 0)} {
				r.Pending = 80
			}
			w.s.Costs.FreeTokens = 40
			p, err := New(name, Options{ChunkFree: free})
			if err != nil {
				t.Fatal(err)
			}
			if got := decide(t, w, p); got != want {
				t.Errorf("%s, %v: %s, want %s", name, free, got, want)
			}
		}
	}
}

func TestStaticBudgetEndsThoughts(t *testing.T) {
	w := newWorld(Limits{Tokens: 10, Sequences: 2, BlockTokens: 4, Blocks: 99}, 1)
	w.arrive(0, 0, 4, 50, 3)
	p := newPolicy(t, "static-budget")
	for range 70 {
		decide(t, w, p)
		w.apply(20 * Millisecond)
	}
	if w.arrive(1, 0, 4, 500, 3); len(w.finished) != 1 || w.finished[0].r.Think != 50 {
		t.Fatalf("a short thought: %+v", w.finished)
	}
	for range 70 {
		decide(t, w, p)
		w.apply(20 * Millisecond)
	}
	if len(w.finished) != 2 || w.finished[1].r.Think != 60 {
		t.Errorf("a thought with a cap of 60: %+v", w.finished)
	}
}

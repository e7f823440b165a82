package policy

import (
	"slices"
	"testing"

	"meridian/kv"
)

// hold makes request i hold blocks as it decodes.
func (w *world) hold(i int, phase kv.Phase, length, think, output int32) *Request {
	r := &w.s.Requests[i]
	*r = Request{
		Arrived: r.Arrived, Tenant: r.Tenant, State: Running, Phase: phase, Pending: 1, Length: length, Prompt: r.Prompt,
		Think: think, Output: output, Blocks: w.s.Limits.blocksFor(int64(length)), LastServed: w.s.Now,
	}
	if phase == kv.Output {
		r.FirstOutput = w.s.Now
	}
	w.s.FreeBlocks -= r.Blocks
	return r
}

func TestDualQueueServesAnswersFirst(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 2, BlockTokens: 4, Blocks: 40, PreemptMaxFraction: 0.1}, 1)
	for i := range 4 {
		w.arrive(i, 0, 8, 10, 10)
	}
	w.hold(0, kv.Think, 8, 1, 0)
	w.hold(1, kv.Output, 8, 1, 1)
	w.hold(2, kv.Output, 8, 1, 1)
	p := newPolicy(t, "dual-queue")
	// One seat of two is kept for thoughts; the second answer is left out.
	if got, want := decide(t, w, p), "run[{1 1} {0 1}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.s.Limits.Sequences, w.s.Costs.Step = 8, 19*Millisecond
	// A step has 1 ms left beside its answers, which is 50 tokens of a prompt.
	w.s.Requests[3].Pending = 80
	if got, want := decide(t, w, p), "run[{1 1} {2 1} {0 1} {3 50}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestVictimsByPhaseThenLeastRecentlyServed(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 8, BlockTokens: 4, Blocks: 10, PreemptMaxFraction: 0.1}, 1)
	for i := range 4 {
		w.arrive(i, 0, 8, 10, 10)
	}
	w.hold(0, kv.Output, 8, 1, 1)
	w.hold(1, kv.Think, 12, 1, 0).LastServed -= 5
	w.hold(2, kv.Think, 8, 1, 0)
	w.hold(3, kv.Output, 11, 1, 1)
	p := newPolicy(t, "dual-queue")
	w.s.Costs.CopiedBlock = 0
	if got, want := decide(t, w, p), "run[{0 1} {3 1} {2 1}] recompute 1 thinking"; got != want {
		t.Errorf("without copies: %s, want %s", got, want)
	}
	w.s.Costs.CopiedBlock = 1
	if got, want := decide(t, w, p), "run[{3 1}] offload 1 thinking"; got != want {
		t.Errorf("blocks that are to be copied: %s, want %s", got, want)
	}
	w.s.Requests[1].Copied = 3
	if got, want := decide(t, w, p), "run[{0 1} {3 1} {2 1}] offload 1 thinking"; got != want {
		t.Errorf("blocks that are copied: %s, want %s", got, want)
	}
	// One that has just come back is spared; the answers come last.
	w.s.Requests[1].Preemptions = 1
	w.s.Costs.CopiedBlock = 0
	if got, want := decide(t, w, p), "run[{0 1} {3 1} {1 1}] recompute 2 thinking"; got != want {
		t.Errorf("one that is owed a token: %s, want %s", got, want)
	}
	w.s.Requests[2].Preemptions = 1
	if got, want := decide(t, w, p), "run[{0 1} {1 1} {2 1}] recompute 3 answering"; got != want {
		t.Errorf("two that are owed a token: %s, want %s", got, want)
	}
}

func TestOwed(t *testing.T) {
	for _, c := range []struct{ preemptions, since, want int32 }{{0, 0, 0}, {1, 0, 1}, {1, 1, 0}, {4, 3, 5}, {20, 0, 256}, {99, 300, 0}} {
		if r := (Request{Preemptions: c.preemptions, Since: c.since}); r.owed() != c.want {
			t.Errorf("preempted %d times, %d tokens ago: owed %d, want %d", c.preemptions, c.since, r.owed(), c.want)
		}
	}
}

func TestPascalReasonsFirst(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 3, BlockTokens: 4, Blocks: 8, PreemptMaxFraction: 0.1}, 1)
	for i := range 4 {
		w.arrive(i, 0, 8, 10, 10)
	}
	w.hold(0, kv.Output, 9, 1, 30) // its third turn is over, its reader has two seconds left
	w.hold(1, kv.Output, 9, 1, 1)  // its reader waits for more
	w.hold(2, kv.Think, 5, 45, 0)  // demoted, in its second turn
	p := newPolicy(t, "pascal")
	w.s.Costs.CopiedBlock = 0
	// The newcomer needs two blocks, of which none is free.
	if got, want := decide(t, w, p), "run[{3 8} {1 1} {2 1}] recompute 0 quantum"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.s.Requests[0].LastServed -= 3 * Second
	w.s.Requests[0].Arrived -= 3 * Second
	w.s.Requests[0].State = Paused
	if got, want := decide(t, w, p), "run[{0 1} {3 8} {1 1}] recompute 2 quantum"; got != want {
		t.Errorf("one that is overdue: %s, want %s", got, want)
	}
}

// Those who take turns go round: a turn is ten tokens long, and the next is of
// the one that was left out longest, whichever came first and however many
// turns each has had.
func TestPascalGoesRound(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 2, BlockTokens: 4, Blocks: 9000, PreemptMaxFraction: 0.1}, 1)
	for i := range 5 { // they have thought for so long that they take turns
		w.arrive(i, 0, 8, 10000, 10)
		w.hold(i, kv.Think, 1000, 930, 0)
	}
	p := newPolicy(t, "pascal").(*Pascal)
	p.patience = 1000 * Second
	turns := make([]int, 7)
	for range 700 {
		for i := 5; w.lastStep == 100 && i < 7; i++ { // two join the round
			w.arrive(i, 0, 8, 10000, 10)
			w.hold(i, kv.Think, 100, 30, 0)
		}
		decide(t, w, p)
		oldest := w.s.Now // of those who are left out
		for i := range w.s.Requests {
			if !slices.ContainsFunc(w.d.Run, func(run Allotment) bool { return run.Request == int32(i) }) {
				oldest = min(oldest, w.s.Requests[i].LastServed)
			}
		}
		for _, run := range w.d.Run {
			r := &w.s.Requests[run.Request]
			begins := p.turn(r) == 0
			if begins {
				turns[run.Request]++
			}
			if begins && r.LastServed > oldest || !begins && r.State != Running {
				t.Fatalf("step %d: %d runs, whose turn is at %d and which was served at %d, another at %d", w.lastStep, run.Request, p.turn(r), r.LastServed, oldest)
			}
		}
		w.apply(20 * Millisecond)
	}
	// There were 20 turns for five, and then 120 for seven.
	for i, n := range turns {
		if n < 17 || n > 22 {
			t.Errorf("%d had %d turns: %v", i, n, turns)
		}
	}
}

// A request may come in once a block more is held, so the decision does not hold
// beyond the step that takes one.
func TestUntilBlock(t *testing.T) {
	for want, slack := range map[int32][]int32{1: {2, 0, 1}, 3: {0, 0, 1}, forever: {0, 0, 0}} {
		k := ranking{draft: draft{slack: slack}}
		if got := k.untilBlock(); got != want {
			t.Errorf("runs by slack %v: %d steps, want %d", slack, got, want)
		}
	}
}

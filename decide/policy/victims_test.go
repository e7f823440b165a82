package policy

import (
	"fmt"
	"math/bits"
	"testing"

	"meridian/kv"
)

// starved is an engine without a free block: half of its requests have begun
// prompts that nothing makes room for, in all lengths, the others decode, and
// some of those lack a block, too. Turns give them many classes under pascal.
func starved(requests int) *world {
	w := newWorld(Limits{Tokens: 8192, Sequences: 1 << 16, BlockTokens: 16, Blocks: 1 << 20, PreemptMaxFraction: 0.1}, 1)
	for i := range requests {
		w.arrive(i, 0, int32(9000-i%1000), 1000, 500)
		r := &w.s.Requests[i]
		r.State, r.Length, r.Blocks = Paused, 16, 1
		r.LastServed = w.s.Now - Instant(i*7919%requests)
		if i >= requests/2 {
			r.State, r.Phase, r.Pending, r.Think, r.Length = Running, kv.Think, 1, int32(i%400), int32(15+i%2)
		}
	}
	w.s.FreeBlocks = 0
	return w
}

// looksOf is what the last decision looked at to find victims.
func looksOf(p Policy) int {
	switch p := p.(type) {
	case *DualQueue:
		return p.victims.looks
	case *Pascal:
		return p.victims.looks
	case *Meridian:
		return p.victims.looks
	}
	return 0
}

// However many ask for blocks in vain, a step looks at its requests about as
// often as it takes to sort them.
func TestVictimsAreFoundInTimeToSort(t *testing.T) {
	for _, name := range Names() {
		for _, requests := range []int{500, 1000, 2000, 16000} {
			p, w := newPolicy(t, name), starved(requests)
			w.s.Costs.FreeTokens = 128
			p.Decide(&w.s, &w.d)
			if err := w.check(false); err != nil {
				t.Fatal(err)
			}
			most := 3 * requests * bits.Len(uint(requests))
			if looks := looksOf(p); looks > most || looks == 0 && name != "stock" && name != "static-budget" {
				t.Errorf("%s, %d requests: looked at %d victims, %d are enough", name, requests, looks, most)
			}
		}
	}
}

// A victim that gives more than was lacking leaves the rest free, and promises
// nothing: one that lacks more than that takes the next.
func TestWhatIsLeftOfAVictimIsNotComing(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 8, BlockTokens: 4, Blocks: 16, PreemptMaxFraction: 0.5}, 1)
	for i := range 5 {
		w.arrive(i, 0, 8, 10, 10)
	}
	w.hold(0, kv.Output, 8, 1, 1)
	w.hold(1, kv.Output, 8, 1, 1).Pending = 16
	w.hold(2, kv.Think, 16, 1, 0)
	w.hold(3, kv.Think, 16, 1, 0)
	w.hold(4, kv.Think, 16, 1, 0)
	w.s.Costs.CopiedBlock = 0
	// The first lacks one block and is given four; the second has three of its four.
	if got, want := decide(t, w, newPolicy(t, "dual-queue")), "run[{0 1} {1 16} {2 1}] recompute 4 thinking recompute 3 thinking"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A victim of which more copies are told than it has blocks gives no more than these.
func TestMoreCopiesThanBlocks(t *testing.T) {
	w := newWorld(Limits{Tokens: 100, Sequences: 8, BlockTokens: 4, Blocks: 8, PreemptMaxFraction: 0.5}, 1)
	for i := range 3 {
		w.arrive(i, 0, 8, 10, 10)
	}
	w.hold(0, kv.Output, 8, 1, 1)
	w.hold(1, kv.Output, 8, 1, 1)
	w.hold(2, kv.Think, 16, 1, 0).Copied = 9
	w.s.Costs.CopiedBlock, w.s.Costs.RecalledBlock, w.s.Costs.PrefillToken = 1, 1, 10
	if got, want := decide(t, w, newPolicy(t, "dual-queue")), "run[{0 1} {1 1}] offload 2 thinking"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func BenchmarkStarved(b *testing.B) {
	for _, name := range Names() {
		for _, requests := range []int{500, 1000, 2000} {
			b.Run(fmt.Sprintf("%s/%d", name, requests), func(b *testing.B) {
				p, w := newPolicy(b, name), starved(requests)
				for b.Loop() {
					p.Decide(&w.s, &w.d)
				}
			})
		}
	}
}

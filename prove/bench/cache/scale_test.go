package cache

import (
	"errors"
	"testing"
	"time"

	"meridian/engine/model"
	"meridian/prove/bench"
	"meridian/prove/replay/workload"
)

// request is one of Mooncake's form.
func request(at time.Duration, prompt int32, blocks ...uint64) workload.Request {
	return workload.Request{At: at, Prompt: prompt, Output: 100, Prefix: blocks, PrefixTokens: 512}
}

// conversations are as many, each of three turns that grow by a block.
func conversations(n int) (all []workload.Request) {
	for turn := range 3 {
		for c := range n {
			blocks := []uint64{0}
			for i := range turn + 2 {
				blocks = append(blocks, uint64(1+100*c+i))
			}
			all = append(all, request(time.Duration(len(all))*time.Second, int32(512*len(blocks)-100), blocks...))
		}
	}
	return all
}

func TestScalingKeepsConversationsWhole(t *testing.T) {
	trace := conversations(100)
	all, s, err := scaled(trace, bounds{requests: 60, unit: 16, prompt: 2000, output: 3})
	if err != nil {
		t.Fatal(err)
	}
	if s.Recorded != 300 || s.OneIn < 5 || s.Divisor != 32 || s.Requests != len(all) || len(all) > 60 || len(all) < 15 || s.Cut != 0 {
		t.Fatalf("scaled to %+v, %d requests", s, len(all))
	}
	turns := make(map[uint64]int)
	for i, q := range all {
		turns[q.Prefix[1]]++
		switch {
		case q.PrefixTokens != 16 || q.Output != 3 || int(q.Prompt) <= 16*(len(q.Prefix)-1) || int(q.Prompt) > 16*len(q.Prefix):
			t.Fatalf("request %d is %+v", i, q)
		case i > 0 && q.At < all[i-1].At:
			t.Fatalf("request %d comes after one that arrives later", i)
		}
	}
	for c, n := range turns {
		if n != 3 {
			t.Errorf("conversation %d has %d of its 3 turns", c, n)
		}
	}
	again, _, err := scaled(conversations(100), bounds{requests: 60, unit: 16, prompt: 2000, output: 3})
	if err != nil || len(again) != len(all) || again[5].Prefix[1] != all[5].Prefix[1] {
		t.Errorf("a second time there are %d requests, not %d: %v", len(again), len(all), err)
	}
}

func TestScalingCutsLongPrompts(t *testing.T) {
	all, s, err := scaled([]workload.Request{request(0, 5*512, 0, 1, 2, 3, 4)}, bounds{requests: 10, unit: 16, prompt: 40, output: 8})
	if err != nil {
		t.Fatal(err)
	}
	if q := all[0]; s.Cut != 1 || q.Prompt != 40 || len(q.Prefix) != 3 || q.Output != 4 || s.PromptTokens != 40 {
		t.Errorf("it is %+v, %+v", q, s)
	}
}

func TestScalingRefuses(t *testing.T) {
	plain := workload.Request{Prompt: 10, Output: 1}
	for name, all := range map[string][]workload.Request{"no blocks": {plain}, "no requests": nil, "odd blocks": {{Prompt: 10, Output: 1, Prefix: []uint64{1}, PrefixTokens: 10}}} {
		if _, _, err := scaled(all, bounds{requests: 10, unit: 16, prompt: 100, output: 8}); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// short is a request whose blocks are units of 4 tokens already.
func short(prompt int32, blocks ...uint64) workload.Request {
	return workload.Request{Prompt: prompt, Prefix: blocks, PrefixTokens: 4}
}

func TestModels(t *testing.T) {
	all := []workload.Request{
		short(10, 1, 2, 3),   // computes 1 and 2; 3 is not whole
		short(12, 1, 2, 3),   // finds 8 tokens
		short(12, 1, 2, 3),   // finds all but the last
		short(12, 4, 5, 6),   // nothing
		short(12, 1, 2, 9),   // finds 8; with room for three units: nothing
		short(12, 1, 100, 9), // finds 4, and not 9, which comes after another
		short(4, 1),          // finds 3
		short(3, 1),          // has no whole unit
	}
	infinite, bounded := modelled(all, 0), modelled(all, 3)
	for i, want := range []struct{ infinite, bounded int }{{0, 0}, {8, 8}, {11, 11}, {0, 0}, {8, 0}, {4, 4}, {3, 3}, {0, 0}} {
		if infinite[i] != want.infinite || bounded[i] != want.bounded {
			t.Errorf("request %d: %d tokens without a bound and %d with three units, not %d and %d", i, infinite[i], bounded[i], want.infinite, want.bounded)
		}
	}
	if got, want := hitRate(all, infinite), 34.0/77; got != want {
		t.Errorf("%v of all tokens without a bound, not %v", got, want)
	}
}

// TestTheLastOfAPromptLeavesFirst: a beginning that stays is worth something, an end
// without it is not.
func TestTheLastOfAPromptLeavesFirst(t *testing.T) {
	hits := modelled([]workload.Request{short(16, 1, 2, 3, 4), short(8, 5, 6), short(16, 1, 2, 3, 4)}, 4)
	if hits[2] != 8 {
		t.Errorf("%d tokens are left of the first prompt, not 8", hits[2])
	}
}

// TestModelsAreKnown holds what is known of the engines' models to the engines.
func TestModelsAreKnown(t *testing.T) {
	for name, known := range models {
		m, err := model.Builtin(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		c := m.Config()
		const keysAndValues, float32Bytes = 2, 4
		if bytes := c.Layers * c.KVHeads * c.HeadDim * keysAndValues * float32Bytes; uint64(bytes) != known.bytesPerToken || m.MaxContext() != known.context {
			t.Errorf("%s has %d bytes a token and a context of %d", name, bytes, m.MaxContext())
		}
	}
}

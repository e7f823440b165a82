package placement

import (
	"slices"
	"testing"
)

// TestUnderway: what several requests have under way is coming until the last of them ends.
func TestUnderway(t *testing.T) {
	c := NewUnderway(4)
	chain := func(hashes ...uint64) Prefix { return Prefix{Hashes: hashes, TokensPerHash: 16} }
	if c.Held("a", chain(1, 2)) != 0 {
		t.Error("something comes before anything has begun")
	}
	first := c.Begin("a", chain(1, 2, 3))
	second := c.Begin("a", chain(1, 2, 4, 5, 6))
	if !slices.Equal(second.Hashes, []uint64{1, 2, 4}) {
		t.Errorf("beyond the bound %v are remembered", second.Hashes)
	}
	for _, want := range []struct {
		engine string
		of     Prefix
		held   int
	}{{"a", chain(1, 2, 3, 7), 3}, {"a", chain(1, 2, 4, 5), 3}, {"a", chain(2), 1}, {"b", chain(1), 0}} {
		if got := c.Held(want.engine, want.of); got != want.held {
			t.Errorf("of %v at %s, %d hashes are coming, not %d", want.of.Hashes, want.engine, got, want.held)
		}
	}
	c.End("a", first)
	if c.Held("a", chain(1, 2, 3)) != 2 {
		t.Error("what the other request has under way is forgotten, or what it has not is still coming")
	}
	c.End("a", second)
	c.End("a", chain()) // of an engine that was forgotten meanwhile
	if len(c.engines) != 0 {
		t.Errorf("%v is left", c.engines)
	}
}

// TestWhatIsComingIsWaitedFor: a prompt that begins like one that an engine is computing
// goes there, unless others wait there for long.
func TestWhatIsComingIsWaitedFor(t *testing.T) {
	o := Options{DirectTokens: 64, AffinityWeight: 1, RunningTokens: 16, StoredWeight: 0.25}
	r := Request{Tokens: 1000}
	for name, c := range map[string]struct {
		engines []Engine
		want    string
	}{
		"one computes it": {
			[]Engine{{ID: "a", Role: Both, Running: 1, Waiting: 960, InFlight: 960}, {ID: "b", Role: Both}},
			"prefill=none (computing, 960 of 1000 tokens), decode=a (computing 960/1000)",
		},
		"a part of it": {
			[]Engine{{ID: "a", Role: Both, Running: 1, Waiting: 800, InFlight: 512}, {ID: "b", Role: Both}},
			"prefill=none (the decode engine is the best for it), decode=b (least loaded)",
		},
		"others wait there": {
			[]Engine{{ID: "a", Role: Both, Running: 4, Waiting: 3000, InFlight: 960}, {ID: "b", Role: Both}},
			"prefill=none (the decode engine is the best for it), decode=b (least loaded)",
		},
		"another holds it": {
			[]Engine{{ID: "a", Role: Both, Running: 1, Waiting: 960, InFlight: 960}, {ID: "b", Role: Both, Held: 960}},
			"prefill=none (cached, 960 of 1000 tokens), decode=b (prefix 960/1000)",
		},
		"a prefill engine computes it": {
			[]Engine{{ID: "a", Role: Prefill, Waiting: 960, InFlight: 960}, {ID: "b", Role: Prefill}, {ID: "d", Role: Decode}},
			"prefill=a (computing 960/1000), decode=d (the only one)",
		},
	} {
		if got, err := Choose(c.engines, r, o); err != nil || got.String() != c.want {
			t.Errorf("%s: %s, not %s; %v", name, got, c.want, err)
		}
	}
}

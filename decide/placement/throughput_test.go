package placement

import (
	"math"
	"testing"
)

func TestPace(t *testing.T) {
	var p Throughput
	answer := func(computed, fetched int64) { // microseconds for each token
		p.Computed(500, 500*computed)
		p.Fetched(896, 896*fetched)
	}
	for range fewAnswers - 1 {
		answer(700, 35)
	}
	if w := p.StoredWeight(); w != 0 {
		t.Errorf("after few answers it weighs %v", w)
	}
	answer(700, 35)
	if w := p.StoredWeight(); math.Abs(w-0.05) > 1e-9 {
		t.Errorf("it weighs %v, not 0.05", w)
	}
	// What says nothing changes nothing.
	p.Computed(fewTokens-1, 60_000_000)
	p.Fetched(900, 2*maxTook)
	p.Fetched(900, -1_000_000)
	p.Computed(-5, 1_000_000)
	if w := p.StoredWeight(); math.Abs(w-0.05) > 1e-9 {
		t.Errorf("it weighs %v, not 0.05", w)
	}
	for range 100 {
		answer(100, 50)
	}
	if w := p.StoredWeight(); math.Abs(w-0.5) > 0.01 {
		t.Errorf("when the engine is seven times as fast it weighs %v, not 0.5", w)
	}
	for range 100 {
		answer(1, 1_000_000)
	}
	if w := p.StoredWeight(); w != 1 {
		t.Errorf("where fetching takes longer it weighs %v", w)
	}
	for range 200 {
		answer(1_000_000, 1)
	}
	if w := p.StoredWeight(); w != leastWeight {
		t.Errorf("where it costs nothing it weighs %v", w)
	}
}

// TestStoredWeightOfAnEngine: what is measured of an engine goes before what is assumed,
// but not where the object cache is to be left out.
func TestStoredWeightOfAnEngine(t *testing.T) {
	r := Request{Tokens: 1000}
	slow, quick := Engine{ID: "slow", Role: Both, Stored: 960, StoredWeight: 0.9}, Engine{ID: "quick", Role: Both, Stored: 960, StoredWeight: 0.05, Waiting: 300}
	for name, c := range map[string]struct {
		weight float64
		want   string
	}{"measured": {0.25, "quick"}, "left out": {1, "slow"}} {
		o := Options{DirectTokens: 64, AffinityWeight: 1, StoredWeight: c.weight}
		if got, err := Choose([]Engine{slow, quick}, r, o); err != nil || got.Decode != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	assumed := Engine{ID: "assumed", Role: Both, Stored: 960, Waiting: 300}
	if got, err := Choose([]Engine{slow, assumed}, r, Options{DirectTokens: 64, AffinityWeight: 1, StoredWeight: 0.25}); err != nil || got.Decode != "assumed" {
		t.Errorf("of one that is not measured what is assumed counts: %s, %v", got, err)
	}
}

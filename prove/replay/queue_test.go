package replay

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"meridian/prove/replay/workload"
)

// An engine that serves one request at a time, each in one step of the same
// length, is the queue M/D/1: requests wait ρ/(2(1−ρ)) services in the mean
// (Pollaczek and Khinchine).
func TestOneAtATimeIsMD1(t *testing.T) {
	p := simple()
	p.MaxSequences = 1
	for _, load := range []float64{0.3, 0.6, 0.8} {
		d := rand.New(rand.NewPCG(42, 1))
		const service = 1e6 + 99*1e4 // ns: 100 tokens of prompt, which find the one token of output
		var requests []workload.Request
		at := 0.0
		for range 200_000 {
			at += d.ExpFloat64() * service / load
			requests = append(requests, workload.Request{At: time.Duration(at), Prompt: 100, Output: 1})
		}
		r := replayed(t, Config{Profile: p}, "stock", requests)
		want := (1 + load/(2*(1-load))) * service / 1e9
		if got := r.Latency.E2E.Mean; math.Abs(got/want-1) > 0.02 {
			t.Errorf("load %g: %.6f s in the mean, and %.6f by the formula", load, got, want)
		}
		if math.Abs(r.Engine.Busy-load) > 0.01 {
			t.Errorf("load %g: busy %g", load, r.Engine.Busy)
		}
	}
}

// With room for all requests and steps that do not depend on how many take part,
// none waits for others but to the end of a step: M/D/∞, in steps.
func TestRoomForAll(t *testing.T) {
	p := simple()
	p.Dense = []Point{{0, 0}, {1, 0}}
	d := rand.New(rand.NewPCG(1, 1))
	var requests []workload.Request
	at := 0.0
	for range 5000 {
		at += d.ExpFloat64() * 20e6
		requests = append(requests, workload.Request{At: time.Duration(at), Prompt: 10, Output: 100})
	}
	r := replayed(t, Config{Profile: p}, "stock", requests)
	if r.Latency.E2E.Min < 0.1 || r.Latency.E2E.Max > 0.101 {
		t.Errorf("100 steps of 1 ms take %g to %g s", r.Latency.E2E.Min, r.Latency.E2E.Max)
	}
	// Little's law: as many are there as arrive while one is served.
	if live := float64(r.Tokens.Output) / float64(r.Engine.Steps); live < 4.5 || live > 5.8 {
		t.Errorf("%g are served at once, and 5 by Little's law, somewhat more as nothing is served while no request is there", live)
	}
}

// A closed cell ends requests as fast as it can: here one every step of 64.
func TestCapacity(t *testing.T) {
	var requests []workload.Request
	for i := range 2000 {
		requests = append(requests, workload.Request{At: time.Duration(i) * time.Hour, Prompt: 1, Output: 64})
	}
	p := simple()
	p.Dense = []Point{{0, 0}, {1, 0}}
	got, err := Capacity(t.Context(), Config{Profile: p}, &workload.List{Requests: requests}, 2000)
	if err != nil {
		t.Fatal(err)
	}
	// 64 at once, 64 tokens each, a token a millisecond.
	if math.Abs(got-1000) > 30 {
		t.Errorf("%g requests a second, want 1000", got)
	}
	if _, err := Capacity(t.Context(), Config{Profile: p}, &workload.List{Requests: requests[:100]}, 2000); err == nil {
		t.Error("100 requests tell the capacity of a cell for 80")
	}
}

// A prompt that is computed by one engine and decoded by another waits for the
// hand-off and for one more step.
func TestHandOff(t *testing.T) {
	p := simple()
	c := Config{Profile: p, Prefills: 1, HandOff: Link{BytesPerSecond: 1e8, Latency: 2 * time.Millisecond}}
	r := replayed(t, c, "stock", []workload.Request{{Prompt: 1000, Output: 3}, {At: time.Second, Prompt: 100, Output: 1}})
	prefill := 1e6 + 999*1e4
	handOff := 2e6 + 999*1000/1e8*1e9
	if got, want := r.Latency.TTFT.Max*1e9, prefill+handOff+1e6; math.Abs(got-want) > 1 {
		t.Errorf("first token after %g ns, want %g", got, want)
	}
	// A short prompt is computed where it is decoded.
	if got, want := r.Latency.TTFT.Min*1e9, 1e6+99*1e4; got != want {
		t.Errorf("first token of a short prompt after %g ns, want %g", got, want)
	}
	if r.Moved.HandOff != 999*1000 {
		t.Errorf("%d bytes moved", r.Moved.HandOff)
	}
}

// The second of two equal prompts finds what the first one computed: at the same
// engine, or in the store.
func TestPrefixes(t *testing.T) {
	prompt := workload.Request{Prompt: 640, Output: 1, PrefixTokens: 64}
	for i := range uint64(10) {
		prompt.Prefix = append(prompt.Prefix, i)
	}
	later := prompt
	later.At = time.Second
	r := replayed(t, Config{Profile: simple()}, "stock", []workload.Request{prompt, later})
	// A token must be computed, so the last chunk is.
	if r.Cache.HitTokens != 576 || r.Tokens.Prompt != 640+64 {
		t.Errorf("one engine: %+v, %d tokens of prompts computed", r.Cache, r.Tokens.Prompt)
	}
	small := simple()
	small.Blocks = 50 // what comes between makes the engine forget
	between := workload.Request{At: time.Second / 2, Prompt: 790, Output: 1}
	c := Config{Profile: small, StoreTokens: 10_000, StoreLink: Link{BytesPerSecond: 1e8, Latency: time.Millisecond}}
	r = replayed(t, c, "stock", []workload.Request{prompt, between, later})
	if r.Cache.StoreTokens != 576 || r.Moved.Store != 576*1000 {
		t.Errorf("store: %+v, %+v", r.Cache, r.Moved)
	}
	c.StoreTokens = 0
	r = replayed(t, c, "stock", []workload.Request{prompt, between, later})
	if r.Cache.HitTokens != 0 || r.Tokens.Prompt != 2*640+790 {
		t.Errorf("forgotten: %+v, %d computed", r.Cache, r.Tokens.Prompt)
	}
}

// Replicas share the load, and requests with one prefix go where it is.
func TestReplicas(t *testing.T) {
	var requests []workload.Request
	for i := range 400 {
		q := workload.Request{At: time.Duration(i) * 5 * time.Millisecond, Prompt: 300, Output: 20, PrefixTokens: 64}
		for chunk := range uint64(4) {
			q.Prefix = append(q.Prefix, uint64(i%8)<<32|chunk)
		}
		requests = append(requests, q)
	}
	one := replayed(t, Config{Profile: simple()}, "stock", requests)
	four := replayed(t, Config{Profile: simple(), Replicas: 4}, "stock", requests)
	if four.Latency.E2E.P95 >= one.Latency.E2E.P95 || four.Engine.Busy >= one.Engine.Busy {
		t.Errorf("four: %g s, busy %g; one: %g s, busy %g", four.Latency.E2E.P95, four.Engine.Busy, one.Latency.E2E.P95, one.Engine.Busy)
	}
	if four.Cache.HitTokens < 400*256*8/10 {
		t.Errorf("%d tokens of %d were found", four.Cache.HitTokens, 400*256)
	}
}

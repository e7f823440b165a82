package replay

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/replay/workload"
	"meridian/sched"
)

// list is a workload in memory.
type list struct {
	requests []workload.Request
	at       int
}

func (l *list) Next() (workload.Request, bool) {
	if l.at == len(l.requests) {
		return workload.Request{}, false
	}
	l.at++
	return l.requests[l.at-1], true
}
func (l *list) Err() error   { return nil }
func (l *list) Close() error { return nil }

func policy(t testing.TB, name string) sched.Policy {
	t.Helper()
	p, err := sched.New(name, sched.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func replayed(t testing.TB, c Config, p string, requests []workload.Request) *Result {
	t.Helper()
	r, err := Run(t.Context(), c, &list{requests: requests}, policy(t, p))
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
		{"TTFVT", r.Latency.TTFVT.Max, prefill + think + first}, {"TTOT", r.Latency.TTOT.Max, first},
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

// mixed is a small workload under pressure.
func mixed(seed uint64, n int) []workload.Request {
	d := rand.New(rand.NewPCG(seed, 1))
	var requests []workload.Request
	at := time.Duration(0)
	for range n {
		at += time.Duration(d.ExpFloat64() * 20e6)
		q := workload.Request{At: at, Prompt: 1 + d.Int32N(700), Output: 1 + d.Int32N(80), Tenant: d.Int32N(3)}
		if d.IntN(2) == 0 {
			q.Think = 1 + d.Int32N(300)
		}
		if d.IntN(3) == 0 {
			q.PrefixTokens = 64
			family := uint64(d.IntN(4))
			for chunk := range uint64(q.Prompt/64) + 1 {
				q.Prefix = append(q.Prefix, family<<32|chunk)
			}
		}
		requests = append(requests, q)
	}
	return requests
}

func TestMacroStepsEqualSingleSteps(t *testing.T) {
	for _, name := range []string{"stock", "static-budget"} {
		p := simple()
		p.ContextNs, p.PairNs, p.SequenceNs, p.Blocks, p.MaxSequences = 37.25, 0.5, 999, 160, 12
		c := Config{Profile: p, SampleEvery: 50 * time.Millisecond}
		requests := mixed(1, 200)
		macro := replayed(t, c, name, slices.Clone(requests))
		c.SingleStep = true
		single := replayed(t, c, name, requests)
		if single.Engine.Decisions <= macro.Engine.Decisions {
			t.Errorf("%s: %d decisions, and %d one by one", name, macro.Engine.Decisions, single.Engine.Decisions)
		}
		macro.Engine.Decisions, single.Engine.Decisions = 0, 0
		if diff := cmp.Diff(single, macro); diff != "" {
			t.Errorf("%s: one by one, and as plans of many steps:\n%s", name, diff)
		}
		if macro.Requests.Counted != 200 || macro.Evictions.Recompute == 0 || macro.Cache.HitTokens == 0 || macro.Engine.Denied > 0 {
			t.Errorf("%s: %+v %+v %+v %+v", name, macro.Requests, macro.Evictions, macro.Cache, macro.Engine)
		}
	}
}

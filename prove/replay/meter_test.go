package replay

import (
	"math"
	"testing"
	"time"

	"meridian/decide/policy"
	"meridian/prove/replay/workload"
)

func chunks(thought bool, tokens int32, times ...time.Duration) []Chunk {
	var all []Chunk
	for _, at := range times {
		all = append(all, Chunk{At: at, Tokens: tokens, Thought: thought})
	}
	return all
}

func about(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.005*math.Abs(want) {
		t.Errorf("%s is %g, want %g", what, got, want)
	}
}

func TestMeterTellsPhasesApart(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	m := NewMeter(SLO{})
	m.Add(Measured{
		Arrived: s, Prompt: 100, Cached: 64, Complete: true,
		Chunks: append(chunks(true, 1, 1500*ms, 1520*ms, 1540*ms), chunks(false, 2, 1600*ms, 1660*ms)...),
	})
	m.Add(Measured{Arrived: 4 * s, Prompt: 10, Complete: true, Chunks: chunks(false, 1, 4200*ms)})
	m.Add(Measured{Arrived: 5 * s, Prompt: 10, Chunks: chunks(true, 1, 5*s)})
	r := m.Result("http://localhost")
	if r.Requests != (Requests{Arrived: 3, Counted: 2, Met: 2}) || r.Tokens != (Tokens{Prompt: 56, Think: 4, Output: 5}) || r.Cache.HitTokens != 64 {
		t.Errorf("%+v %+v %+v", r.Requests, r.Tokens, r.Cache)
	}
	about(t, "TTFT", r.Latency.TTFT.Max, 0.5)
	about(t, "TTFVT of the thinker", r.Latency.Thinking.P50, 0.6)
	about(t, "TTFVT of the other", r.Latency.Chat.P50, 0.2)
	about(t, "TTOT", r.Latency.TTOT.P50, 0.06)
	about(t, "think ITL", r.Latency.ThinkITL.P50, 0.02)
	about(t, "answer ITL", r.Latency.AnswerITL.P50, 0.03)
	about(t, "E2E", r.Latency.E2E.Max, 0.66)
	about(t, "throughput", r.TokensPerSecond, 8.0/5)
	about(t, "requests a second", r.RequestsPerSecond, 2.0/5)
}

// The reader who waits for the second half of an answer has a worse experience
// by as much as the definition says.
func TestMeterQuality(t *testing.T) {
	slo := SLO{QoE: 0.95, TPOT: 100 * time.Millisecond}
	for name, c := range map[string]struct {
		times []time.Duration
		want  float64
	}{
		"on time":       {[]time.Duration{0, 100, 200, 300}, 1},
		"ahead of time": {[]time.Duration{0, 1, 2, 3}, 1},
		// Tokens 2 and 3 are read 200 ms late: 400 of 4·(200+100) + 100·6.
		"a stall": {[]time.Duration{0, 100, 400, 410}, 1 - 400.0/1800},
	} {
		m := NewMeter(slo)
		for i := range c.times {
			c.times[i] *= time.Millisecond
		}
		m.Add(Measured{Prompt: 1, Complete: true, Chunks: chunks(false, 1, c.times...)})
		r := m.Result("")
		about(t, name, r.Latency.QoE.Mean, c.want)
		if met := r.SLOAttainment == 1; met != (c.want >= slo.QoE) {
			t.Errorf("%s: attainment %g", name, r.SLOAttainment)
		}
	}
	m := NewMeter(slo)
	m.Add(Measured{Prompt: 1, Complete: true, Chunks: chunks(true, 1, 5)})
	if r := m.Result(""); r.SLOAttainment != 0 || r.Latency.TTFVT.Count != 0 {
		t.Errorf("a thought without an answer: %+v", r)
	}
	if r := replayed(t, Config{Profile: simple()}, "stock", []workload.Request{{Prompt: 9, Think: 5}}); r.SLOAttainment != 0 || r.Latency.QoE.Max != 0 {
		t.Errorf("a thought without an answer, replayed: SLO %v, QoE %v", r.SLOAttainment, r.Latency.QoE.Max)
	}
}

// Requests that end at one moment may be counted in any order.
func TestFairnessDoesNotDependOnOrder(t *testing.T) {
	c := Config{}.withDefaults()
	fairness := func(order ...ps) Fairness {
		sum := tally{config: &c, tpot: c.SLO.TPOT.Microseconds()}
		for _, took := range order {
			sum.finished(&policy.Request{}, &sequence{counted: true}, took, 7)
		}
		sum.finished(&policy.Request{}, &sequence{counted: true, tenant: 1}, 22, 7)
		return sum.fairness()
	}
	for a := ps(7); a < 60; a += 3 {
		if x, y := fairness(a, a+1, 3*a), fairness(3*a, a+1, a); x != y {
			t.Fatalf("%+v and %+v", x, y)
		}
	}
}

package gateway

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"meridian/see/ledger"
)

func TestStopwatch(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	type chunk struct {
		ms int
		sample
	}
	for name, c := range map[string]struct {
		chunks []chunk
		end    int
		want   ledger.Latency
	}{
		"nothing": {nil, 9, ledger.Latency{QueueMs: 2, TotalMs: 9}},
		"an answer": {
			[]chunk{{10, sample{}}, {20, sample{answered: true, visible: true, tokens: 1}}, {30, sample{answered: true, visible: true, tokens: 1}}, {50, sample{answered: true, visible: true, tokens: 2}}},
			60,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 20, AnswerITLMs: 10, TotalMs: 60},
		},
		"a thought before it": {
			[]chunk{
				{20, sample{thought: true, tokens: 1}},
				{24, sample{thought: true, tokens: 1}},
				{25, sample{tokens: 1}}, // held back, still of the thought
				{40, sample{answered: true, visible: true, tokens: 1}},
				{48, sample{answered: true, visible: true, tokens: 1}},
			},
			50,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 40, TTOTMs: 16, ThinkITLMs: 2.5, AnswerITLMs: 8, TotalMs: 50},
		},
		"white space after it": {
			[]chunk{
				{20, sample{thought: true, tokens: 1}},
				{30, sample{answered: true, tokens: 1}},
				{40, sample{answered: true, visible: true, tokens: 1}},
			},
			50,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 40, TTOTMs: 20, AnswerITLMs: 10, TotalMs: 50},
		},
		"uncounted tokens": {
			[]chunk{{20, sample{answered: true, visible: true}}, {26, sample{answered: true, visible: true}}},
			30,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 20, AnswerITLMs: 6, TotalMs: 30},
		},
	} {
		s := stopwatch{began: began, admitted: at(2)}
		for _, chunk := range c.chunks {
			s.take(at(chunk.ms), chunk.sample)
		}
		if diff := cmp.Diff(c.want, s.latency(at(c.end)), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	h.observe(500*time.Microsecond, 1)
	h.observe(600*time.Microsecond, 2)
	h.observe(time.Hour, 1)
	d := h.snapshot()
	if d.Count != 4 || d.Buckets[0.0005] != 1 || d.Buckets[0.001] != 3 || d.Buckets[300] != 3 || d.Sum < 3600 {
		t.Errorf("got %+v", d)
	}
}

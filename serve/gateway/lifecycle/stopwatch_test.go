package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"meridian/kv"
	"meridian/see/ledger"
)

func TestStopwatch(t *testing.T) {
	began := 1000 * kv.Second
	at := func(ms int) kv.Instant { return began + kv.Instant(ms)*kv.Millisecond }
	type chunk struct {
		ms int
		Sample
	}
	for name, c := range map[string]struct {
		chunks []chunk
		end    int
		want   ledger.Latency
	}{
		"nothing": {nil, 9, ledger.Latency{QueueMs: 2, TotalMs: 9}},
		"an answer": {
			[]chunk{{10, Sample{}}, {20, Sample{Answered: true, Visible: true, Tokens: 1}}, {30, Sample{Answered: true, Visible: true, Tokens: 1}}, {50, Sample{Answered: true, Visible: true, Tokens: 2}}},
			60,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 20, AnswerITLMs: 10, TotalMs: 60},
		},
		"a thought before it": {
			[]chunk{
				{20, Sample{Thought: true, Tokens: 1}},
				{24, Sample{Thought: true, Tokens: 1}},
				{25, Sample{Tokens: 1}}, // held back, still of the thought
				{40, Sample{Answered: true, Visible: true, Tokens: 1}},
				{48, Sample{Answered: true, Visible: true, Tokens: 1}},
			},
			50,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 40, TTOTMs: 16, ThinkITLMs: 2.5, AnswerITLMs: 8, TotalMs: 50},
		},
		"white space after it": {
			[]chunk{
				{20, Sample{Thought: true, Tokens: 1}},
				{30, Sample{Answered: true, Tokens: 1}},
				{40, Sample{Answered: true, Visible: true, Tokens: 1}},
			},
			50,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 40, TTOTMs: 20, AnswerITLMs: 10, TotalMs: 50},
		},
		"uncounted tokens": {
			[]chunk{{20, Sample{Answered: true, Visible: true}}, {26, Sample{Answered: true, Visible: true}}},
			30,
			ledger.Latency{QueueMs: 2, TTFTMs: 20, TTFVTMs: 20, AnswerITLMs: 6, TotalMs: 30},
		},
	} {
		s := Stopwatch{Began: began, Admitted: at(2)}
		for _, chunk := range c.chunks {
			s.Take(at(chunk.ms), chunk.Sample)
		}
		if diff := cmp.Diff(c.want, s.Latency(at(c.end)), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

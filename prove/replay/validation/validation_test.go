package validation

import (
	"errors"
	"strings"
	"testing"
	"time"

	"meridian/prove/bench"
	"meridian/prove/replay"
	"meridian/prove/replay/workload"
)

// What an engine with a known profile would have answered is predicted exactly.
func TestCompareWithAnEngineThatKeepsToItsProfile(t *testing.T) {
	p := replay.Profile{
		Name: "exact", StepNs: 1e6, Dense: []replay.Point{{Tokens: 0, Ns: 0}, {Tokens: 64, Ns: 0}},
		BlockTokens: 16, Blocks: 1000, MaxTokens: 64, MaxSequences: 8,
	}
	// One at a time: a prompt of 16 takes one step, and so does every token after.
	var answers []answer
	for i := range 20 {
		a := answer{request: workload.Request{At: time.Duration(i+1) * time.Second, Prompt: 16, Think: 10, Output: 20}}
		for token := range 30 {
			a.tokens = append(a.tokens, a.request.At+time.Duration(token+1)*time.Millisecond)
		}
		answers = append(answers, a)
	}
	rows, err := compare(t.Context(), replay.Config{Profile: p, NoOffload: true}, 0.5, answers)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Error > 0.02 || row.Error < -0.02 { // histograms have buckets
			t.Errorf("%+v", row)
		}
	}
	if len(rows) != 11 || rows[0].Metric != "TTFT" || rows[2].Measured != 11 {
		t.Errorf("%+v", rows)
	}
}

// A short run of everything; its figures are the machine's, and are not judged.
func TestRun(t *testing.T) {
	r, err := Run(t.Context(), Options{Model: "tiny", Loads: []float64{0.3}, Seconds: 1, MaxRunning: 4, StepTokens: 32, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 11 || r.Steps < 100 || r.Capacity <= 0 || !r.Profile.Measured || r.Profile.MaxTokens != 32 {
		t.Errorf("%+v", r)
	}
	for _, row := range r.Rows {
		if row.Predicted <= 0 || row.Measured <= 0 {
			t.Errorf("%+v", row)
		}
	}
	var text, data strings.Builder
	if err := errors.Join(r.WriteText(&text), r.WriteJSON(&data)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "median error") || !strings.Contains(data.String(), `"context_ns"`) {
		t.Errorf("%s\n%s", text.String(), data.String())
	}
}

func TestRunRefuses(t *testing.T) {
	good := Options{Model: "tiny", Loads: []float64{1}, Seconds: 1, MaxRunning: 4, StepTokens: 32}
	for name, spoil := range map[string]func(*Options){
		"no load": func(o *Options) { o.Loads = nil }, "a load of nothing": func(o *Options) { o.Loads = []float64{0} },
		"no time": func(o *Options) { o.Seconds = 0 }, "short steps": func(o *Options) { o.StepTokens = 3 },
		"no model": func(o *Options) { o.Model = "" },
	} {
		o := good
		spoil(&o)
		if _, err := Run(t.Context(), o); !errors.Is(err, bench.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

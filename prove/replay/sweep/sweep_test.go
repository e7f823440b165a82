package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/decide/policy"
	"meridian/prove/replay"
	"meridian/prove/replay/report"
)

// small is a sweep that takes a second: one little engine, a minute of the
// synthetic mix, two policies.
func small(t *testing.T) Options {
	t.Helper()
	profile, err := replay.FindProfile("qwen3-32b-1xh200")
	if err != nil {
		t.Fatal(err)
	}
	profile.Blocks, profile.MaxSequences = 3000, 32
	return Options{
		Workload: "synthetic", Duration: time.Minute, Subject: "pascal", Loads: []float64{0.5, 1.2}, Seeds: []uint64{1, 2, 3},
		Candidates: []Candidate{{Name: "stock", Policy: "stock"}, {Name: "pascal", Policy: "pascal"}},
		Cell:       replay.Config{Profile: profile}, Build: "test", Commit: "0", Command: "test",
	}
}

func written(t *testing.T, o Options) string {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The same seeds make the same bytes, however many cores there are.
func TestReportsAreTheSameEveryTime(t *testing.T) {
	o := small(t)
	o.Jobs = 1
	want := written(t, o)
	o.Jobs = 4
	if got := written(t, o); got != want {
		t.Error("report.json depends on how many runs go at a time")
	}
	o.Seeds = []uint64{1, 2, 4}
	if got := written(t, o); got == want {
		t.Error("another seed makes the same report")
	}
}

func TestLoadIsAPartOfCapacity(t *testing.T) {
	o := small(t)
	o.Duration = 5 * time.Minute
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !(r.Workload.RateAt1 > 0) {
		t.Fatalf("the capacity is %v", r.Workload.RateAt1)
	}
	value := func(metric string, load float64) float64 {
		for _, v := range r.Point("stock", load).Values {
			if v.Metric == metric {
				return v.Mean
			}
		}
		t.Fatalf("%s was not measured", metric)
		return 0
	}
	if low, high := value("ttft_p99", 0.5), value("ttft_p99", 1.2); high < 2*low {
		t.Errorf("TTFT P99 is %v at half load and %v beyond capacity", low, high)
	}
	if low, high := value(report.Throughput, 0.5), value(report.Throughput, 1.2); high < 1.5*low {
		t.Errorf("throughput is %v at half load and %v beyond capacity", low, high)
	}
	for _, p := range r.Points {
		if p.Timeline == nil || len(p.Timeline.Requests) == 0 || len(p.Timeline.Requests[0].Values) < 10 {
			t.Fatalf("no timeline of %s at %v", p.Policy, p.Load)
		}
	}
}

// What load 1 is measured with comes from the whole window, not from its first
// minutes, whether the window has more requests than needed or fewer.
func TestCapacityIsOfTheWholeWindow(t *testing.T) {
	for workload, count := range map[string]int{"servegen-r1": 800, "synthetic": 100, "mooncake-conversation": 100} {
		o := small(t)
		o.Workload, o.Duration = workload, 5*time.Minute
		info, err := o.info()
		if err != nil {
			t.Fatal(err)
		}
		source, err := o.sample(info, count)
		if err != nil {
			t.Fatal(err)
		}
		requests, parts := 0, [5]int{}
		for r, more := source.Next(); more; r, more = source.Next() {
			requests++
			parts[min(5*r.At/info.Duration, 4)]++
		}
		if requests < count*3/4 || requests > count*5/4 || slices.Contains(parts[:], 0) {
			t.Errorf("%s: %d requests, by fifths %v; want about %d from the whole window", workload, requests, parts, count)
		}
	}
}

// Seeds draw from recorded traces, too, at every load from the same window; and
// a trace that ends before the window says how long it was.
func TestRecordedTracesAreDrawn(t *testing.T) {
	var trace strings.Builder
	trace.WriteString(`{"schema":"meridian.workload/1"}` + "\n")
	for i := range 300 { // outside of the window all think
		think := 0
		if i < 60 || i >= 180 {
			think = 60
		}
		fmt.Fprintf(&trace, `{"at_us":%d,"prompt":300,"think":%d,"output":%d}`+"\n", 1_000_000*i, think, 20+i*i%90)
	}
	o := small(t)
	o.Workload = filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(o.Workload, []byte(trace.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Start, o.Duration, o.Capacity, o.Loads = time.Minute, 2*time.Minute, 2, []float64{0.2, 2}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, load := range o.Loads {
		for _, v := range r.Point("stock", load).Values {
			if v.Metric == "think_tokens" && v.Mean != 0 {
				t.Errorf("load %v: %v tokens of thought a request, which only those outside of the window have", load, v.Mean)
			}
			if v.Metric == report.Throughput && (v.Seeds[0] == v.Seeds[1] || v.Seeds[1] == v.Seeds[2]) {
				t.Errorf("load %v: seeds do not differ: %v", load, v.Seeds)
			}
		}
	}
	o.Duration = time.Hour
	info, err := o.info()
	if err != nil {
		t.Fatal(err)
	}
	if d := o.about(info).Workload.DurationS; d < 239 || d > 241 {
		t.Errorf("the window lasts %v s; the trace has four minutes more", d)
	}
}

func TestRunRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Options)
		says  string
	}{
		"no policy":         {func(o *Options) { o.Candidates = nil }, "no policy"},
		"unknown policy":    {func(o *Options) { o.Candidates[0].Policy = "best" }, "unknown policy"},
		"a policy twice":    {func(o *Options) { o.Candidates[0].Name = "pascal" }, "named twice"},
		"unknown subject":   {func(o *Options) { o.Subject = "best" }, `the subject "best"`},
		"no load":           {func(o *Options) { o.Loads = nil }, "0 loads"},
		"a load of nothing": {func(o *Options) { o.Loads = []float64{0} }, "load 0"},
		"a load twice":      {func(o *Options) { o.Loads = []float64{1, 1} }, "load 1"},
		"no seed":           {func(o *Options) { o.Seeds = nil }, "0 seeds"},
		"no time":           {func(o *Options) { o.Duration = 0 }, "a window of 0s"},
		"only warm-up":      {func(o *Options) { o.Cell.Warmup = time.Minute }, "leaves nothing"},
	} {
		o := small(t)
		c.spoil(&o)
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInterruptedBeforeTheFirstRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, small(t)); !errors.Is(err, ErrInterrupted) {
		t.Error(err)
	}
}

func TestParameters(t *testing.T) {
	for _, p := range Parameters {
		for _, name := range p.Policies {
			for _, x := range []float64{p.Low, p.High} {
				c := Candidate{Policy: name}
				p.set(&c, x)
				if _, err := policy.New(name, c.Options); err != nil {
					t.Errorf("%s = %v: %v", p.Name, x, err)
				}
				if got := p.get(&c); got != x {
					t.Errorf("%s = %v, set to %v", p.Name, got, x)
				}
			}
		}
	}
	c := Candidate{Policy: "pascal"}
	if err := c.Set("pace_ms=80"); err != nil || c.Options.Pace != 80*policy.Millisecond {
		t.Errorf("%v, %+v", err, c.Options)
	}
	if got := settings(c); got != "pace_ms=80" {
		t.Errorf("settings %q", got)
	}
	for _, bad := range []string{"pace_ms", "pace_ms=", "pace_ms=0", "pace_ms=-1", "pace_ms=NaN", "pace=1", "think_cap_tokens=5"} {
		if err := c.Set(bad); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestCandidatesHaveNames(t *testing.T) {
	for text, want := range map[string]Candidate{
		"stock": {Name: "stock", Policy: "stock"}, "stock+cut=stock": {Name: "stock+cut", Policy: "stock"}, "stock=stock": {Name: "stock", Policy: "stock"},
	} {
		if c, err := NewCandidate(text); err != nil || c != want {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	for _, bad := range []string{"=stock", "a.b=stock", "a b=stock", strings.Repeat("a", 41) + "=stock", "pascal=stock"} {
		if _, err := NewCandidate(bad); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A policy can be in a report twice, and its steps be shorter than the engine's.
func TestVariants(t *testing.T) {
	o := small(t)
	cut, err := NewCandidate("cut=stock")
	if err != nil {
		t.Fatal(err)
	}
	if err := cut.Set("step_tokens=256"); err != nil {
		t.Fatal(err)
	}
	same := Candidate{Name: "same", Policy: "stock"}
	o.Candidates, o.Subject, o.Loads = []Candidate{{Name: "stock", Policy: "stock"}, same, cut}, "cut", []float64{1.2}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := []report.Variant{{Name: "same", Policy: "stock"}, {Name: "cut", Policy: "stock", Settings: "step_tokens=256"}}; !slices.Equal(r.Variants, want) {
		t.Errorf("variants %+v", r.Variants)
	}
	values := func(policy string) (all []float64) {
		for _, v := range r.Point(policy, 1.2).Values {
			all = append(all, v.Mean)
		}
		return all
	}
	if !slices.Equal(values("stock"), values("same")) {
		t.Error("the same policy under two names is two")
	}
	if slices.Equal(values("stock"), values("cut")) {
		t.Error("steps of 256 tokens change nothing")
	}
	o.Candidates[2].StepTokens = o.Cell.Profile.MaxTokens + 1
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "step_tokens") {
		t.Errorf("steps longer than the engine's: %v", err)
	}
}

func TestTune(t *testing.T) {
	o := TuneOptions{
		Options: small(t), Objective: "answer_itl_p99", KeepThroughput: 0.5, Trials: 3, Seed: 1, HeldOut: time.Hour, HeldOutSeeds: []uint64{11, 12},
	}
	o.Candidates = []Candidate{{Name: "dual-queue", Policy: "dual-queue"}, {Name: "stock", Policy: "stock"}}
	o.Loads, o.Seeds = []float64{0.8}, []uint64{1}
	var trials []Trial
	o.Tried = func(t Trial) { trials = append(trials, t) }
	r, err := Tune(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(trials) != 3 || trials[0].Settings == trials[1].Settings {
		t.Errorf("%v", trials)
	}
	if r.Subject != "dual-queue-tuned" || len(r.Policies) != 3 || r.Workload.FromS != 3600 || len(r.Seeds) != 2 {
		t.Errorf("the report is about %+v with seeds %v", r.About, r.Seeds)
	}
	for name, spoil := range map[string]func(*TuneOptions){
		"overlap":        func(o *TuneOptions) { o.HeldOut = o.Duration / 2 },
		"a shared seed":  func(o *TuneOptions) { o.HeldOutSeeds = o.Seeds },
		"no trials":      func(o *TuneOptions) { o.Trials = 0 },
		"no such policy": func(o *TuneOptions) { o.Candidates = []Candidate{{Name: "best", Policy: "best"}} },
		"no such metric": func(o *TuneOptions) { o.Objective = "beauty" },
		"a mere fact":    func(o *TuneOptions) { o.Objective = "think_tokens" },
	} {
		bad := o
		spoil(&bad)
		if _, err := Tune(t.Context(), bad); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

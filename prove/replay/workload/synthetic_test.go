package workload

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"
)

func collect(t *testing.T, name string, o Options) ([]Request, Info) {
	t.Helper()
	source, info, err := Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var all []Request
	var last time.Duration
	for r, more := source.Next(); more; r, more = source.Next() {
		if r.At < last || r.At > info.Duration {
			t.Fatalf("request %d of %s came at %v, after one at %v, in a window of %v", len(all), name, r.At, last, info.Duration)
		}
		last = r.At
		all = append(all, r)
	}
	if err := source.Err(); err != nil {
		t.Fatal(err)
	}
	return all, info
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Abs(want) {
		t.Errorf("%s is %.4g, want %.4g within %g %%", what, got, want, 100*tolerance)
	}
}

func TestSyntheticDefaults(t *testing.T) {
	all, info := collect(t, "synthetic", Options{Seed: 42})
	if info.Duration != 30*time.Second || info.Rate != 8 || !info.Synthetic {
		t.Errorf("the defaults are %+v", info)
	}
	near(t, "requests", float64(len(all)), 240, 0.2)
	for _, r := range all {
		if r.Think != 0 && (r.Think < 600 || r.Think > 6000) || r.Output < 40 || r.Output > 240 || r.Prompt < 1 {
			t.Fatalf("lengths out of range: %+v", r)
		}
	}
}

func TestSyntheticMeans(t *testing.T) {
	all, info := collect(t, "synthetic", Options{Seed: 1, Scale: 10, Duration: 1000 * time.Second})
	var prompt, think, output, reasoning float64
	for _, r := range all {
		prompt, think, output = prompt+float64(r.Prompt), think+float64(r.Think), output+float64(r.Output)
		if r.Think > 0 {
			reasoning++
		}
	}
	n := float64(len(all))
	near(t, "rate", n/1000, info.Rate, 0.02)
	near(t, "prompt", prompt/n, info.MeanPrompt, 0.02)
	near(t, "think", think/n, info.MeanThink, 0.02)
	near(t, "output", output/n, info.MeanOutput, 0.02)
	near(t, "reasoning", reasoning/n, 0.4, 0.02)
}

func TestSeedsDecide(t *testing.T) {
	a, _ := collect(t, "synthetic", Options{Seed: 7})
	b, _ := collect(t, "synthetic", Options{Seed: 7})
	c, _ := collect(t, "synthetic", Options{Seed: 8})
	if !reflect.DeepEqual(a, b) {
		t.Error("one seed gave two workloads")
	}
	if reflect.DeepEqual(a, c) {
		t.Error("two seeds gave one workload")
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"lunch":     {},
		"synthetic": {Scale: -1},
	} {
		if _, _, err := Open(name, o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s with %+v: %v", name, o, err)
		}
	}
	for _, o := range []Options{
		{Scale: math.Inf(1)},
		{Scale: math.NaN()},
		{Start: -1},
		{Duration: -1},
		{Synthetic: Mix{Reasoning: 1.5}},
		{Synthetic: Mix{Rate: -2}},
		{Synthetic: Mix{Rate: math.NaN()}},
	} {
		if _, _, err := Open("synthetic", o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

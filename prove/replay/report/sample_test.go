package report

import (
	"math"
	"math/rand/v2"
	"testing"
)

// sampleAbout and sampleRuns are a replay that never was: policies whose
// merits are known, so that tests can say what a report must find.
func sampleAbout() About {
	return About{
		Build: "v0.0.0-test", Commit: "0123456", Command: "meridian replay --workload synthetic --policy all --out DIR",
		Workload: Workload{Name: "synthetic", Label: "made up for tests", Licence: "none", Synthetic: true, DurationS: 3600, RateAt1: 12.5},
		Engine:   []Fact{{"Engine", "qwen3-32b on 1 × H200"}, {"KV memory", "20000 blocks of 16 tokens"}},
		Policies: samplePolicies, Subject: "meridian", Variants: []Variant{{Name: "stock-512", Policy: "stock", Settings: "step_tokens=512"}},
	}
}

var samplePolicies = []string{"stock", "static-budget", "pascal", "stock-512", "meridian"}

// merits multiply latencies: at low load all are alike, at high load meridian
// is ahead of stock, of pascal, and of stock with shorter steps; pascal loses some
// throughput, meridian is slower in think ITL. static-budget is ahead of all, and
// does less.
var merits = map[string]float64{"stock": 1, "static-budget": 0.2, "pascal": 0.8, "stock-512": 0.7, "meridian": 0.6}

func sampleRuns() []Run {
	var runs []Run
	for _, load := range []float64{0.5, 0.9, 1.1} {
		for seed := range uint64(5) {
			for _, policy := range samplePolicies {
				runs = append(runs, sampleRun(policy, load, seed))
			}
		}
	}
	return runs
}

func sampleRun(policy string, load float64, seed uint64) Run {
	noise := rand.New(rand.NewPCG(seed, math.Float64bits(load)+uint64(len(policy))))
	weather := 1 + 0.2*rand.New(rand.NewPCG(seed, 7)).Float64() // of the seed, the same for every policy
	pressure := max(0, (load-0.4)/0.7)
	merit := 1 + (merits[policy]-1)*pressure*pressure
	r := Run{Policy: policy, Load: load, Seed: seed, Values: map[string]float64{}, Quantiles: map[string][]float64{}}
	for i, l := range Latencies {
		scale := []float64{0.2, 12, 0.05, 0.03, 0.03, 20, 14, 0.3}[i] * weather * (1 + 8*pressure*pressure*merit) * (1 + 0.01*noise.Float64())
		if l.Name == "think_itl" && policy == "meridian" {
			scale *= 1.5 // something to lose
		}
		for _, p := range percentiles {
			r.Values[Percentile(l.Name, p)] = scale * -math.Log(1-float64(p)/100)
		}
		for _, p := range Grid {
			r.Quantiles[l.Name] = append(r.Quantiles[l.Name], scale*(0.05-math.Log(1-p)))
		}
	}
	r.Values[Attainment] = 1 - 0.4*pressure*pressure*merit*weather
	r.Values["goodput"] = 12.5 * load * r.Values[Attainment]
	r.Values[Throughput] = 1500 * min(load, 1) * weather
	if policy == "pascal" {
		r.Values[Throughput] *= 0.95
	}
	r.Values["thought_saved"] = 0
	r.Values["slowdown_p99"] = weather * (2 + 8*pressure*merit)
	if policy == "static-budget" {
		r.Values["thought_saved"] = 0.25 * pressure
	}
	r.Values["think_tokens"] = 1067 * weather
	r.Timeline = sampleTimeline(pressure * merit)
	return r
}

func sampleTimeline(height float64) *Timeline {
	t := &Timeline{StepS: 120}
	share := func(name string, of *[]Series, f func(x float64) float64) {
		s := Series{Name: name}
		for i := range 31 {
			s.Values = append(s.Values, rounded(f(float64(i)/30)))
		}
		*of = append(*of, s)
	}
	wave := func(x float64) float64 { return 1 + 0.5*math.Sin(9*x) }
	share("waiting", &t.Requests, func(x float64) float64 { return math.Round(60 * height * height * wave(x)) })
	share("prefill", &t.Requests, func(x float64) float64 { return 3 })
	share("think", &t.Requests, func(x float64) float64 { return math.Round(80 * height * wave(x+0.2)) })
	share("output", &t.Requests, func(x float64) float64 { return math.Round(40 * height * wave(x+0.4)) })
	share("paused", &t.Requests, func(x float64) float64 { return math.Round(10 * height * x) })
	share("prefill", &t.KV, func(x float64) float64 { return 0.04 })
	share("think", &t.KV, func(x float64) float64 { return 0.3 * height * wave(x) })
	share("output", &t.KV, func(x float64) float64 { return 0.2 * height * wave(x+0.2) })
	share("paused", &t.KV, func(x float64) float64 { return 0.1 * height * x })
	share("cached", &t.KV, func(x float64) float64 { return 0.1 })
	return t
}

func sample(t *testing.T) *Report {
	t.Helper()
	r, err := Build(sampleAbout(), sampleRuns())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

package governor

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"meridian/decide/entropy"
)

var update = flag.Bool("update", false, "write testdata/governor anew")

// thoughtVector is a thought and what is said of it. meridian/_thought.py is held to the
// same file: the rule that an engine carries out by itself is this one.
type thoughtVector struct {
	Name  string  `json:"name"`
	Max   int32   `json:"max_think_tokens"`
	Min   int     `json:"min_think_tokens"`
	Asked int32   `json:"asked"` // 0: the request did not say
	On    bool    `json:"entropy"`
	Alpha float64 `json:"ema_alpha"`
	RPDI  float64 `json:"rpdi_threshold"`
	EAT   float64 `json:"eat_ema_variance_threshold"`

	Steps []thoughtStep `json:"steps"`
	// Verdicts are what is said from so many steps on, repeats counted.
	Verdicts []thoughtVerdict `json:"verdicts"`
}

type thoughtStep struct {
	Kind     string   `json:"kind"` // token, miss, fork
	Times    int      `json:"times"`
	Nats     *float64 `json:"nats"` // null is no number
	Boundary bool     `json:"boundary"`
}

type thoughtVerdict struct {
	After   int    `json:"after"`
	Verdict string `json:"verdict"`
}

func nats(v float64) *float64 { return &v }

// thoughtVectors are thoughts that end for every reason, and some that must not.
func thoughtVectors() []thoughtVector {
	calm := thoughtStep{"token", 1500, nats(0.2), true}
	lost := thoughtStep{"token", 512, nats(4), true}
	all := []thoughtVector{
		{Name: "hard cap", Max: 5, Steps: []thoughtStep{{"token", 8, nats(1), true}}},
		{Name: "asked for less", Max: 50, Asked: 3, Steps: []thoughtStep{{"token", 8, nats(1), true}}},
		{Name: "asked for more", Max: 5, Asked: 50, Steps: []thoughtStep{{"token", 8, nats(1), true}}},
		{Name: "without entropies the cap holds", Max: 5, On: true, Steps: []thoughtStep{{"miss", 8, nil, false}}},
		{Name: "overthinking", Max: 1 << 20, On: true, Steps: []thoughtStep{calm, lost}},
		{Name: "overthinking is told before the cap", Max: 1700, On: true, Steps: []thoughtStep{calm, lost}},
		{Name: "entropies are switched off", Max: 1 << 20, Steps: []thoughtStep{calm, lost}},
		{Name: "a missing entropy", Max: 1 << 20, On: true, Steps: []thoughtStep{{"miss", 1, nil, false}, calm, lost}},
		{Name: "gaps among the last", Max: 1 << 20, On: true, Steps: []thoughtStep{calm, {"miss", 5, nil, false}, lost, {"miss", 100, nil, false}, lost}},
		{Name: "too many are missing", Max: 1 << 20, On: true, Steps: []thoughtStep{{"miss", 800, nil, false}, calm, lost}},
		{Name: "no number", Max: 1 << 20, On: true, Steps: []thoughtStep{{"token", 1, nil, true}, calm, lost}},
		{Name: "too much for an entropy", Max: 1 << 20, On: true, Steps: []thoughtStep{{"token", 1, nats(45), true}, calm, lost}},
		{Name: "a hair below zero", Max: 1 << 20, On: true, Steps: []thoughtStep{{"token", 1, nats(-1e-5), true}, calm, lost}},
		{Name: "within a clause", Max: 1 << 20, On: true, Steps: []thoughtStep{calm, {"token", 512, nats(4), false}, {"token", 1, nats(4), true}}},
		{Name: "shorter than the least", Max: 1 << 20, Min: 1 << 19, On: true, Steps: []thoughtStep{calm, lost}},
		{Name: "just long enough", Max: 1 << 20, Min: 1900, On: true, Steps: []thoughtStep{calm, lost}},
		{Name: "certain throughout", Max: 1 << 20, On: true, Steps: []thoughtStep{{"token", 2000, nats(0), true}}},
		{Name: "converged", Max: 1 << 20, On: true, Alpha: 0.2, Steps: []thoughtStep{{"token", 3, nats(1), true}, {"fork", 40, nats(0.5), false}}},
		{Name: "converged not before the least", Max: 1 << 20, Min: 10, On: true, Alpha: 0.2, Steps: []thoughtStep{{"token", 3, nats(1), true}, {"fork", 40, nats(0.5), false}, {"token", 7, nats(1), true}, {"fork", 1, nats(0.5), false}}},
		{Name: "the first reason stays", Max: 1 << 20, On: true, Alpha: 0.2, Steps: []thoughtStep{calm, {"fork", 40, nats(0.5), false}, lost}},
	}
	chance := rand.New(rand.NewPCG(18, 1))
	for _, mean := range []float64{0.5, 2} {
		v := thoughtVector{Name: "a walk", Max: 4000, Min: 700, On: true, RPDI: 1.2, Alpha: 0.1}
		for range 400 {
			value := math.Round(1000*mean*(0.2+chance.Float64())*(1+float64(len(v.Steps))/120)) / 1000
			v.Steps = append(v.Steps, thoughtStep{"token", 1 + chance.IntN(6), &value, chance.IntN(4) == 0})
			if chance.IntN(9) == 0 {
				v.Steps = append(v.Steps, thoughtStep{"fork", 1, nats(math.Round(1000*chance.Float64()) / 1000), false})
			}
		}
		all = append(all, v)
	}
	for i := range all {
		v := &all[i]
		if v.Alpha == 0 {
			v.Alpha = 0.05
		}
		if v.RPDI == 0 {
			v.RPDI = 3
		}
		v.EAT = 1e-3
		v.Verdicts = v.run()
	}
	return all
}

func (v *thoughtVector) run() (verdicts []thoughtVerdict) {
	budget := Budget{MaxThinkTokens: v.Max, Entropy: v.On, Probe: entropy.Options{
		Alpha: v.Alpha, EATVariance: v.EAT, EATInterval: 1, RPDI: v.RPDI, Transition: 2.5, MinThinkTokens: v.Min,
	}}
	thought := budget.Begin(v.Asked)
	think, after, last := int32(0), 0, ""
	for _, step := range v.Steps {
		for range step.Times {
			value := math.NaN()
			if step.Nats != nil {
				value = *step.Nats
			}
			switch step.Kind {
			case "token":
				thought.Token(value, step.Boundary)
				think++
			case "miss":
				thought.Miss(1)
				think++
			case "fork":
				thought.Forked(value)
			}
			after++
			if said := thought.Verdict(think).String(); said != last {
				verdicts, last = append(verdicts, thoughtVerdict{after, said}), said
			}
		}
	}
	return verdicts
}

// TestThoughtVectors holds the rule to the file that engines are held to.
func TestThoughtVectors(t *testing.T) {
	path := filepath.Join("..", "..", "testdata", "governor", "thoughts.jsonl")
	vectors := thoughtVectors()
	var made bytes.Buffer
	encoder := json.NewEncoder(&made)
	for i := range vectors {
		if err := encoder.Encode(&vectors[i]); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(path, made.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, made.Bytes()) {
		t.Errorf("the rule no longer says what %s has: if that is meant, go test ./decide/governor -run ThoughtVectors -update", path)
	}
	told := map[string]bool{}
	for _, v := range vectors {
		for _, verdict := range v.Verdicts {
			told[verdict.Verdict] = true
		}
	}
	if len(told) != len(forceReasons) {
		t.Errorf("of all reasons the vectors have only %v", told)
	}
}

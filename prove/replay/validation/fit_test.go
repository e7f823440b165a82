package validation

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"meridian/engine"
	"meridian/prove/replay"
)

// stepsOf draws steps that take what a profile says, and now and then far longer.
func stepsOf(p replay.Profile, n int, noise float64) []engine.Step {
	dice := rand.New(rand.NewPCG(1, 2))
	var steps []engine.Step
	for range n {
		s := engine.Step{Sequences: 1 + dice.IntN(32)}
		s.Tokens = s.Sequences
		s.Context = int64(s.Sequences) * int64(50+dice.IntN(500))
		if dice.IntN(3) == 0 {
			more := 1 + dice.IntN(64-s.Sequences)
			s.Tokens += more
			s.Pairs = int64(more * (more + dice.IntN(300)))
		}
		ns := stepNs(p, s)
		ns *= 1 + noise*(dice.Float64()-0.5)
		if dice.IntN(100) == 0 {
			ns *= 20
		}
		s.Took = time.Duration(ns)
		steps = append(steps, s)
	}
	return steps
}

func TestFitFindsTheProfile(t *testing.T) {
	want := replay.Profile{
		StepNs: 300_000, SequenceNs: 20_000, ContextNs: 500, PairNs: 300,
		Dense: []replay.Point{{Tokens: 0, Ns: 0}, {Tokens: 4, Ns: 400_000}, {Tokens: 16, Ns: 1_000_000}, {Tokens: 64, Ns: 2_000_000}},
	}
	steps := stepsOf(want, 5000, 0.1)
	got, err := Fit(steps)
	if err != nil {
		t.Fatal(err)
	}
	// What a step takes is what counts: sequences and tokens may stand in for each
	// other where every sequence has one.
	for _, s := range steps[:500] {
		if a, b := stepNs(got, s), stepNs(want, s); math.Abs(a/b-1) > 0.02 {
			t.Fatalf("%+v takes %.0f ns, want %.0f; the profile is %+v", s, a, b, got)
		}
	}
	if e := fitError(steps, got); e > 0.04 {
		t.Errorf("half of the steps are more than %g off", e)
	}
	if _, err := Fit(steps[:10]); !errors.Is(err, ErrFit) {
		t.Error("ten steps make a profile:", err)
	}
}

package validation

import (
	"errors"
	"math"
	"slices"

	"meridian/engine"
	"meridian/prove/replay"
)

// ErrFit means that there are not enough steps to tell what they depend on.
var ErrFit = errors.New("validation: too few steps to fit a profile: measure for longer")

// knees are where the time of a token may fall, when more are computed at once.
var knees = [...]int{4, 16}

// features are what the time of a step is a sum of: the step, its sequences, its
// tokens up to each knee and beyond, context and pairs.
const features = 5 + len(knees)

func featuresOf(s engine.Step) [features]float64 {
	f := [features]float64{1, float64(s.Sequences), float64(s.Context), float64(s.Pairs), float64(s.Tokens)}
	for i, knee := range knees {
		f[5+i] = float64(min(s.Tokens, knee))
	}
	return f
}

// Fit finds the profile under which steps take what they took. Errors count in
// parts, so that short steps, of which there are many, are as right as long ones.
// No part of a step takes less than no time.
func Fit(steps []engine.Step) (replay.Profile, error) {
	if len(steps) < 20*features {
		return replay.Profile{}, ErrFit
	}
	var times [features]float64
	kept := steps
	for range 5 {
		times = leastSquares(kept, times)
		kept = plausible(steps, times)
	}
	p := replay.Profile{StepNs: times[0], SequenceNs: times[1], ContextNs: times[2], PairNs: times[3]}
	most := knees[len(knees)-1] + 1
	for _, s := range steps {
		most = max(most, s.Tokens)
	}
	for _, tokens := range append([]int{1}, append(knees[:], most)...) {
		ns := times[4] * float64(tokens)
		for i, knee := range knees {
			ns += times[5+i] * float64(min(tokens, knee))
		}
		p.Dense = append(p.Dense, replay.Point{Tokens: int32(tokens), Ns: ns})
	}
	return p, nil
}

// predicted is what a step takes by times.
func predicted(f [features]float64, times [features]float64) float64 {
	sum := 0.0
	for i := range f {
		sum += f[i] * times[i]
	}
	return sum
}

// plausible leaves out steps in which the machine did something else: those that
// took several times what others like them did.
func plausible(steps []engine.Step, times [features]float64) []engine.Step {
	const implausible = 4
	var ratios []float64
	for _, s := range steps {
		ratios = append(ratios, float64(s.Took)/predicted(featuresOf(s), times))
	}
	sorted := slices.Sorted(slices.Values(ratios))
	usual := sorted[len(sorted)/2]
	var kept []engine.Step
	for i, s := range steps {
		if ratios[i] < implausible*usual {
			kept = append(kept, s)
		}
	}
	return kept
}

// leastSquares weighs every step by what the last guess said it takes, or by what
// it took where there is none.
func leastSquares(steps []engine.Step, guess [features]float64) [features]float64 {
	var a [features][features]float64
	var b, scale [features]float64
	for _, s := range steps {
		f := featuresOf(s)
		expected := predicted(f, guess)
		if expected <= 0 {
			expected = float64(s.Took)
		}
		for i := range f {
			x := f[i] / expected
			b[i] += x * float64(s.Took) / expected
			for j := range f {
				a[i][j] += x * f[j] / expected
			}
		}
	}
	for i := range scale {
		scale[i] = math.Sqrt(max(a[i][i], math.SmallestNonzeroFloat64))
	}
	// One unknown after the other, none below zero, until nothing moves: the sum of
	// squares has one lowest point, and every pass comes nearer to it.
	var x [features]float64
	for range 20_000 {
		moved := 0.0
		for i := range x {
			if a[i][i] == 0 {
				continue // no step had any of it
			}
			rest := b[i]
			for j := range x {
				if j != i {
					rest -= a[i][j] * x[j]
				}
			}
			next := max(rest/a[i][i], 0)
			moved = max(moved, math.Abs(next-x[i])*scale[i])
			x[i] = next
		}
		if moved < 1e-9*math.Sqrt(float64(len(steps))) {
			break
		}
	}
	return x
}

// fitError is the median part by which a step differs from its profile.
func fitError(steps []engine.Step, p replay.Profile) float64 {
	var errs []float64
	for _, s := range steps {
		errs = append(errs, math.Abs(stepNs(p, s)/float64(s.Took)-1))
	}
	slices.Sort(errs)
	return errs[len(errs)/2]
}

// stepNs is what a step takes by a profile.
func stepNs(p replay.Profile, s engine.Step) float64 {
	return p.StepNs + p.SequenceNs*float64(s.Sequences) + dense(p, s.Tokens) + p.ContextNs*float64(s.Context) + p.PairNs*float64(s.Pairs)
}

// dense joins the points of a profile.
func dense(p replay.Profile, tokens int) float64 {
	at := 1
	for at < len(p.Dense)-1 && int(p.Dense[at].Tokens) < tokens {
		at++
	}
	from, to := p.Dense[at-1], p.Dense[at]
	return from.Ns + (to.Ns-from.Ns)*float64(tokens-int(from.Tokens))/float64(to.Tokens-from.Tokens)
}

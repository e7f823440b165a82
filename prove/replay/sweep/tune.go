package sweep

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"meridian/prove/replay/report"
	"meridian/prove/replay/workload"
)

// TuneOptions say what is searched, and where.
type TuneOptions struct {
	// Options are of the training window; of their Candidates only the first is
	// tuned, and the others are reported beside it.
	Options
	// Objective is a metric of the report; what is tuned may not fall below
	// KeepThroughput of the throughput that it had before, at any load.
	Objective      string
	KeepThroughput float64
	// Trials are how many settings are tried, and Seed draws them.
	Trials int
	Seed   uint64
	// HeldOut is where the window begins that the report is made on, with
	// HeldOutSeeds; neither was seen by the search.
	HeldOut      time.Duration
	HeldOutSeeds []uint64
	// Tried, if it is there, is told of every trial.
	Tried func(Trial)
}

// Trial is one setting and what it came to on the training window.
type Trial struct {
	Number, Trials int
	Settings       string
	// Gain is how much better the objective is than with the defaults: a part,
	// or points of a share; the mean over loads and seeds.
	Gain float64
	// Kept says that throughput did not fall too far, Best that this is the best
	// of those until now.
	Kept, Best bool
}

func (t Trial) String() string {
	verdict := ""
	switch {
	case !t.Kept:
		verdict = ", too little throughput"
	case t.Best:
		verdict = ", the best until now"
	}
	return fmt.Sprintf("trial %d of %d: %+.2f %%%s: %s", t.Number, t.Trials, 100*t.Gain, verdict, t.Settings)
}

// TunedSuffix marks the tuned candidate beside the one with its defaults.
const TunedSuffix = "-tuned"

// maxTrials bounds a search.
const maxTrials = 10000

func (o *TuneOptions) checkTune() error {
	switch {
	case len(o.Candidates) == 0:
		return fmt.Errorf("%w: no policy to tune", ErrOptions)
	case o.Trials < 1 || o.Trials > maxTrials:
		return fmt.Errorf("%w: %d trials; there are 1 to %d", ErrOptions, o.Trials, maxTrials)
	case !(o.KeepThroughput >= 0 && o.KeepThroughput <= 1):
		return fmt.Errorf("%w: the part of throughput to keep is %g; it is from 0 to 1", ErrOptions, o.KeepThroughput)
	case o.HeldOut < o.Start+o.Duration && o.Start < o.HeldOut+o.Duration:
		return fmt.Errorf("%w: the held-out window from %v on overlaps the one from %v on, of %v", ErrOptions, o.HeldOut, o.Start, o.Duration)
	}
	for _, seed := range o.HeldOutSeeds {
		if slices.Contains(o.Seeds, seed) {
			return fmt.Errorf("%w: seed %d is both of the search and of the report", ErrOptions, seed)
		}
	}
	m := slices.IndexFunc(report.Metrics, func(m report.Metric) bool { return m.Name == o.Objective })
	if m < 0 || report.Metrics[m].Better == report.Neither {
		return fmt.Errorf("%w: the objective %q is no metric that can be better or worse, such as %s", ErrOptions, o.Objective, report.TailTTFVT)
	}
	return nil
}

// Tune searches the parameters of the first candidate, and reports on the
// held-out window: the tuned one as the subject, beside its defaults and the
// other candidates.
func Tune(ctx context.Context, o TuneOptions) (*report.Report, error) {
	if err := o.checkTune(); err != nil {
		return nil, err
	}
	o.Subject = o.Candidates[0].Name
	if err := o.check(); err != nil {
		return nil, err
	}
	info, err := o.info()
	if err != nil {
		return nil, err
	}
	training := o.Options
	if training.Capacity == 0 {
		if training.Capacity, err = o.capacity(ctx, info); err != nil {
			return nil, err
		}
	}
	best, err := o.search(ctx, training, info)
	if err != nil {
		return nil, err
	}
	best.Name += TunedSuffix
	final := o.Options
	final.Start, final.Seeds = o.HeldOut, o.HeldOutSeeds
	final.Candidates = append(slices.Clone(o.Candidates), best)
	final.Subject = best.Name
	return Run(ctx, final)
}

// search tries settings: first drawn from the whole range, then, for the second
// half, near the best that was found.
func (o *TuneOptions) search(ctx context.Context, training Options, info workload.Info) (Candidate, error) {
	dice := rand.New(rand.NewPCG(o.Seed, 0x74756e65))
	start := o.Candidates[0]
	training.Candidates = []Candidate{start}
	defaults, err := training.runs(ctx, info)
	if err != nil {
		return start, err
	}
	best, bestGain := start, 0.0
	for trial := 1; trial <= o.Trials; trial++ {
		c := start
		if trial <= (o.Trials+1)/2 {
			c.draw(dice, nil)
		} else {
			c.draw(dice, &best)
		}
		training.Candidates = []Candidate{c}
		runs, err := training.runs(ctx, info)
		if err != nil {
			return best, fmt.Errorf("trial %d of %d: %w", trial, o.Trials, err)
		}
		gain, kept := o.gain(runs, defaults)
		isBest := kept && gain > bestGain
		if isBest {
			best, bestGain = c, gain
		}
		if o.Tried != nil {
			o.Tried(Trial{Number: trial, Trials: o.Trials, Settings: settings(c), Gain: gain, Kept: kept, Best: isBest})
		}
	}
	return best, nil
}

// near is how far the second half of a search goes from the best: this part of
// a parameter's range on each side.
const near = 0.15

// draw sets every parameter of c that is a quantity, anywhere in its range or near another's.
func (c *Candidate) draw(dice *rand.Rand, around *Candidate) {
	for _, p := range Of(c.Policy) {
		if p.Low == p.High {
			continue // a switch
		}
		low, high := math.Log(p.Low), math.Log(p.High)
		at := low + dice.Float64()*(high-low)
		if around != nil {
			if x := p.get(around); x > 0 {
				at = math.Log(x) + (2*dice.Float64()-1)*near*(high-low)
			}
		}
		p.set(c, math.Exp(min(max(at, low), high)))
	}
}

// gain is how much better the objective is in runs than in those with the
// defaults, which had the same loads and seeds in the same order; and whether
// throughput stayed.
func (o *TuneOptions) gain(runs, defaults []report.Run) (gain float64, kept bool) {
	m := report.Metrics[slices.IndexFunc(report.Metrics, func(m report.Metric) bool { return m.Name == o.Objective })]
	kept = true
	now, before := map[float64]float64{}, map[float64]float64{}
	for i, run := range runs {
		v, w := run.Values[m.Name], defaults[i].Values[m.Name]
		change := v - w
		if m.Unit != report.Share && m.Unit != report.Index {
			change = math.Log(max(v, 1e-12) / max(w, 1e-12))
		}
		if m.Better == report.Lower {
			change = -change
		}
		gain += change / float64(len(runs))
		now[run.Load] += run.Values[report.Throughput]
		before[run.Load] += defaults[i].Values[report.Throughput]
	}
	for load, w := range before {
		kept = kept && now[load] >= o.KeepThroughput*w
	}
	return gain, kept
}

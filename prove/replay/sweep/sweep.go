package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"meridian/decide/policy"
	"meridian/prove/replay"
	"meridian/prove/replay/report"
	"meridian/prove/replay/workload"
)

// ErrOptions is wrapped by what makes no sweep.
var ErrOptions = errors.New("replay")

// Options say what is replayed.
type Options struct {
	// Workload is opened by its name; its window begins at Start of its own time.
	Workload string
	DataDir  string
	Start    time.Duration
	Duration time.Duration
	// Candidates are compared on the same requests, and Subject, one of them, is
	// what the report is about.
	Candidates []Candidate
	Subject    string
	// Loads are parts of Capacity, in requests a second; where it is 0, it is
	// found out first.
	Loads    []float64
	Capacity float64
	// Seeds draw the requests, each a run of its own.
	Seeds []uint64
	// Cell is what serves.
	Cell replay.Config
	// Jobs run at a time; 0 is one for each core.
	Jobs int
	// Build, Commit and Command are what the report says of where it comes from.
	Build, Commit, Command string
	// Progress, if it is there, is told how far the runs are, by one at a time.
	Progress func(Progress)
}

// Candidate is a policy with parameters, under the name that a report has it by.
type Candidate struct {
	Name    string
	Policy  string
	Options policy.Options
	// StepTokens bounds a step where it is not 0; else the engine's profile does.
	StepTokens int32
}

// What is replayed at most.
const (
	maxLoads = report.MaxLoads
	maxSeeds = report.MaxSeeds
	maxLoad  = 100
)

func (o *Options) check() error {
	names := make([]string, len(o.Candidates))
	for i, c := range o.Candidates {
		if _, err := policy.New(c.Policy, c.Options); err != nil {
			return fmt.Errorf("%w: %w", ErrOptions, err)
		}
		if slices.Contains(names, c.Name) {
			return fmt.Errorf("%w: the policy %s is named twice", ErrOptions, c.Name)
		}
		if most := cmp.Or(o.Cell.MaxTokens, o.Cell.Profile.MaxTokens); c.StepTokens < 0 || c.StepTokens > most {
			return fmt.Errorf("%w: step_tokens of %s is %d; this engine has up to %d", ErrOptions, c.Name, c.StepTokens, most)
		}
		names[i] = c.Name
	}
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: no policy", ErrOptions)
	case len(names) > report.MaxPolicies:
		return fmt.Errorf("%w: %d policies; there are at most %d", ErrOptions, len(names), report.MaxPolicies)
	case !slices.Contains(names, o.Subject):
		return fmt.Errorf("%w: the subject %q is not among the policies %s", ErrOptions, o.Subject, strings.Join(names, ", "))
	case len(o.Loads) == 0 || len(o.Loads) > maxLoads:
		return fmt.Errorf("%w: %d loads; there are 1 to %d", ErrOptions, len(o.Loads), maxLoads)
	case len(o.Seeds) == 0 || len(o.Seeds) > maxSeeds:
		return fmt.Errorf("%w: %d seeds; there are 1 to %d", ErrOptions, len(o.Seeds), maxSeeds)
	case o.Duration <= 0:
		return fmt.Errorf("%w: a window of %v; it must last", ErrOptions, o.Duration)
	case o.Cell.Warmup >= o.Duration:
		return fmt.Errorf("%w: a warm-up of %v leaves nothing of %v", ErrOptions, o.Cell.Warmup, o.Duration)
	case !(o.Capacity >= 0) || math.IsInf(o.Capacity, 0):
		return fmt.Errorf("%w: a capacity of %g requests a second", ErrOptions, o.Capacity)
	}
	for i, load := range o.Loads {
		if !(load > 0 && load <= maxLoad) || slices.Contains(o.Loads[:i], load) {
			return fmt.Errorf("%w: load %v; loads are above 0, up to %d, and each comes once", ErrOptions, load, maxLoad)
		}
	}
	return nil
}

// Run replays every candidate at every load with every seed, and reports.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	info, err := o.info()
	if err != nil {
		return nil, err
	}
	if o.Capacity == 0 {
		if o.Capacity, err = o.capacity(ctx, info); err != nil {
			return nil, err
		}
	}
	runs, err := o.runs(ctx, info)
	if err != nil {
		return nil, err
	}
	return report.Build(o.about(info), runs)
}

// info is what the window is at a scale of 1.
func (o *Options) info() (workload.Info, error) {
	source, info, err := o.open(1, capacitySeed, o.Duration)
	if err != nil {
		return info, err
	}
	if err := source.Close(); err != nil {
		return info, err
	}
	if !(info.Rate > 0) {
		return info, fmt.Errorf("%w: no request of %s arrives in %v from %v on", ErrOptions, o.Workload, o.Duration, o.Start)
	}
	return info, nil
}

func (o *Options) open(scale float64, seed uint64, duration time.Duration) (workload.Source, workload.Info, error) {
	return workload.Open(o.Workload, workload.Options{DataDir: o.DataDir, Seed: seed, Scale: scale, Start: o.Start, Duration: duration, Resample: true})
}

func (o *Options) runs(ctx context.Context, info workload.Info) ([]report.Run, error) {
	m := &matrix{progress: o.Progress}
	for _, load := range o.Loads {
		for _, seed := range o.Seeds {
			for _, c := range o.Candidates {
				m.jobs = append(m.jobs, job{c, load, seed})
			}
		}
	}
	return each(ctx, o.Jobs, m, func(ctx context.Context, j job, part func(float64)) (report.Run, error) {
		r, err := o.one(ctx, info, j, part)
		if err != nil {
			return report.Run{}, err
		}
		return reported(j, r), nil
	})
}

// one is a single run.
func (o *Options) one(ctx context.Context, info workload.Info, j job, part func(float64)) (*replay.Result, error) {
	policy, err := policy.New(j.candidate.Policy, j.candidate.Options)
	if err != nil {
		return nil, err
	}
	source, _, err := o.open(j.load*o.Capacity/info.Rate, j.seed, o.Duration)
	if err != nil {
		return nil, err
	}
	config := o.Cell
	config.Seed = j.seed
	config.MaxTokens = cmp.Or(j.candidate.StepTokens, config.MaxTokens)
	config.Progress = func(now time.Duration, _ int64) { part(float64(now) / float64(info.Duration)) }
	r, err := replay.Run(ctx, config, source, policy)
	if err = errors.Join(err, source.Close()); err != nil {
		return nil, err
	}
	if r.Requests.Counted == 0 {
		return nil, fmt.Errorf("%w: no request arrived after the warm-up of %v: the window of %v is too short", ErrOptions, config.Warmup, o.Duration)
	}
	return r, nil
}

// about is what the report says of how it came to be.
func (o *Options) about(info workload.Info) report.About {
	names := make([]string, len(o.Candidates))
	var variants []report.Variant
	for i, c := range o.Candidates {
		names[i] = c.Name
		if c.Name != c.Policy {
			variants = append(variants, report.Variant{Name: c.Name, Policy: c.Policy, Settings: settings(c)})
		}
	}
	return report.About{
		Build: o.Build, Commit: o.Commit, Command: o.Command, Policies: names, Variants: variants, Subject: o.Subject, Engine: o.engineFacts(),
		Workload: report.Workload{
			Name: info.Name, Label: info.Label, Licence: info.Licence, Synthetic: info.Synthetic || info.Sample || o.Cell.Thoughts != nil,
			FromS: o.Start.Seconds(), DurationS: info.Duration.Seconds(), RateAt1: o.Capacity,
		},
	}
}

func (o *Options) engineFacts() []report.Fact {
	c, p := &o.Cell, &o.Cell.Profile
	engines := fmt.Sprintf("%d × %s", max(1, c.Replicas), p.Name)
	if c.Prefills > 0 {
		engines += fmt.Sprintf(" that decode, %d that prefill", c.Prefills)
	}
	facts := []report.Fact{
		{Name: "Engines", Value: engines},
		{Name: "Step time", Value: p.Source},
		{Name: "KV memory", Value: fmt.Sprintf("%d blocks of %d tokens each engine", p.Blocks, p.BlockTokens)},
		{Name: "A step", Value: fmt.Sprintf("at most %d tokens of %d sequences", p.MaxTokens, p.MaxSequences)},
		{Name: "Warm-up", Value: fmt.Sprintf("%v; requests that arrive earlier are served and not counted", c.Warmup)},
	}
	for _, candidate := range o.Candidates {
		if set := settings(candidate); set != "" {
			facts = append(facts, report.Fact{Name: candidate.Name, Value: set})
		}
	}
	return facts
}

package validation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"meridian/decide/policy"
	"meridian/engine"
	"meridian/prove/bench"
	"meridian/prove/replay"
	"meridian/prove/replay/workload"
)

// Options is what to validate with.
type Options struct {
	// Model is the reference engine's: tiny or small.
	Model string
	// Loads are parts of what the engine can serve, by its profile.
	Loads []float64
	// Seconds is how long each load lasts, and how long the engine is measured
	// before.
	Seconds float64
	// MaxRunning and StepTokens are the engine's.
	MaxRunning, StepTokens int
	Seed                   uint64
	bench.Setting
}

func (o *Options) check() error {
	switch {
	case len(o.Loads) == 0 || len(o.Loads) > 100 || slices.Min(o.Loads) <= 0 || !(slices.Max(o.Loads) <= 10):
		return fmt.Errorf("%w: loads %v; some, above 0, up to 10", bench.ErrOptions, o.Loads)
	case !(o.Seconds > 0 && o.Seconds <= 3600):
		return fmt.Errorf("%w: %g seconds; above 0, up to 3600", bench.ErrOptions, o.Seconds)
	case o.MaxRunning < 1 || o.StepTokens < o.MaxRunning || o.StepTokens > 1<<16:
		return fmt.Errorf("%w: %d answers at a time in steps of %d tokens; a step has one for each at least, and %d at most", bench.ErrOptions, o.MaxRunning, o.StepTokens, 1<<16)
	}
	return nil
}

// Run measures, serves and predicts.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	recorder := &recorder{}
	blocks := o.MaxRunning * (longest/blockTokens + 1) * 2
	e, err := engine.Open(ctx, engine.Options{
		ID: "validated", Model: o.Model, Reasoning: true, BlockTokens: blockTokens, Blocks: blocks, MaxWaiting: maxWaiting,
		MaxRunning: o.MaxRunning, StepTokens: o.StepTokens, OnStep: recorder.add,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bench.ErrOptions, err)
	}
	r, err := measure(ctx, o, e, recorder, int32(blocks))
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return r, errors.Join(err, e.Close(closing))
}

const (
	blockTokens = 16
	maxWaiting  = 1 << 16
)

// recorder keeps the steps of an engine, while it is to.
type recorder struct {
	mu    sync.Mutex
	keeps bool
	steps []engine.Step
}

func (r *recorder) add(s engine.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keeps {
		r.steps = append(r.steps, s)
	}
}

func (r *recorder) keep(keeps bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keeps = keeps
}

func measure(ctx context.Context, o Options, e *engine.Engine, rec *recorder, blocks int32) (*Report, error) {
	meter := bench.StartMeter(nil)
	r := &Report{Head: bench.NewHead(o.Version), Rows: []Row{}, options: o}
	p, err := profile(ctx, o, e, rec)
	if err != nil {
		return nil, err
	}
	p.Name, p.Source, p.Measured = o.Model, "the reference engine, one thread, on "+bench.Machine(), true
	p.BlockTokens, p.Blocks, p.MaxTokens, p.MaxSequences = blockTokens, blocks, int32(o.StepTokens), int32(o.MaxRunning)
	r.Profile, r.FitError, r.Steps = p, bench.Rounded(fitError(rec.steps, p)), len(rec.steps)
	config := replay.Config{Profile: p, NoOffload: true}
	r.Capacity, err = replay.Capacity(ctx, config, endless{dice: rand.New(rand.NewPCG(o.Seed, 2))}, int64(20*o.MaxRunning))
	if err != nil {
		return nil, err
	}
	for i, load := range o.Loads {
		o.tell(i+1, fmt.Sprintf("load %g, %.1f requests a second", load, load*r.Capacity))
		seed := o.Seed + uint64(i+1)<<32
		d := &driver{engine: e}
		answers, err := d.open(ctx, arrivals(load*r.Capacity, seconds(o.Seconds), seed), seed)
		if err != nil {
			return nil, err
		}
		rows, err := compare(ctx, config, load, answers)
		if err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.sumUp()
	r.Others = meter.Others()
	return r, nil
}

func (o *Options) tell(row int, what string) {
	o.Tell(bench.Progress{Row: row, Rows: len(o.Loads), What: what, Round: 1, Rounds: 1, Who: "the reference engine"})
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// profile measures steps with few and with many requests at a time.
func profile(ctx context.Context, o Options, e *engine.Engine, rec *recorder) (replay.Profile, error) {
	var clients []int
	for n := 1; n < o.MaxRunning; n *= 2 {
		clients = append(clients, n)
	}
	clients = append(clients, o.MaxRunning)
	share := seconds(o.Seconds / float64(len(clients)))
	d := &driver{engine: e, start: time.Now()}
	for i, n := range slices.Concat([]int{1}, clients) { // the first warms up
		o.Tell(bench.Progress{What: fmt.Sprintf("measuring steps with %d requests at a time", n)})
		rec.keep(i > 0)
		if err := d.closed(ctx, n, share, o.Seed+uint64(i)<<16); err != nil {
			return replay.Profile{}, err
		}
	}
	rec.keep(false)
	return Fit(rec.steps)
}

// compare replays what was served, and puts both side by side.
func compare(ctx context.Context, config replay.Config, load float64, answers []answer) ([]Row, error) {
	slices.SortStableFunc(answers, func(a, b answer) int { return int(a.request.At - b.request.At) })
	var requests []workload.Request
	for _, a := range answers {
		requests = append(requests, a.request)
	}
	stock, err := policy.New("stock", policy.Options{})
	if err != nil {
		return nil, err
	}
	found, err := replay.Run(ctx, config, &workload.List{Requests: requests}, stock)
	if err != nil {
		return nil, err
	}
	m := measuredOf(answers)
	var rows []Row
	for _, metric := range []struct {
		name      string
		measured  []time.Duration
		predicted replay.Distribution
	}{
		{"TTFT", m.ttft, found.Latency.TTFT},
		{"TTFVT", m.ttfvt, found.Latency.TTFVT},
		{"think ITL", m.thinkITL, found.Latency.ThinkITL},
		{"answer ITL", m.answerITL, found.Latency.AnswerITL},
		{"E2E", m.e2e, found.Latency.E2E},
	} {
		slices.Sort(metric.measured)
		for _, q := range []struct {
			name      string
			part      float64
			predicted float64
		}{{"P50", 0.5, metric.predicted.P50}, {"P95", 0.95, metric.predicted.P95}} {
			at := min(len(metric.measured)-1, int(q.part*float64(len(metric.measured))))
			rows = append(rows, newRow(load, metric.name, q.name, "ms", 1e3*q.predicted, 1e3*metric.measured[at].Seconds()))
		}
	}
	rows = append(rows, newRow(load, "throughput", "", "tokens/s", found.TokensPerSecond, m.tokensPerSecond))
	return rows, nil
}

// measured is what clients saw.
type measured struct {
	ttft, ttfvt, thinkITL, answerITL, e2e []time.Duration
	tokensPerSecond                       float64
}

func measuredOf(answers []answer) measured {
	var m measured
	last := answers[len(answers)-1].request.At
	tokens := 0
	for _, a := range answers {
		at, think := a.request.At, int(a.request.Think)
		m.ttft = append(m.ttft, a.tokens[0]-at)
		m.ttfvt = append(m.ttfvt, a.tokens[think]-at)
		m.e2e = append(m.e2e, a.tokens[len(a.tokens)-1]-at)
		for i, t := range a.tokens {
			switch {
			case i == 0 || i == think:
			case i < think:
				m.thinkITL = append(m.thinkITL, t-a.tokens[i-1])
			default:
				m.answerITL = append(m.answerITL, t-a.tokens[i-1])
			}
			if t <= last {
				tokens++
			}
		}
	}
	m.tokensPerSecond = float64(tokens) / last.Seconds()
	return m
}

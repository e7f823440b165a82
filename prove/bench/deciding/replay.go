package deciding

import (
	"context"
	"fmt"
	"time"

	"meridian/decide/policy"
	"meridian/prove/bench"
	"meridian/prove/replay"
	"meridian/prove/replay/workload"
)

// ReplayOptions is what RunReplay measures.
type ReplayOptions struct {
	Options
	Requests int    // of a round
	Workload string // as workload.Open names it
	DataDir  string
	Load     float64
	Profile  replay.Profile
	Policies []string
}

// replayBound is a million requests a minute, in nanoseconds for one.
const replayBound = 60_000

// RunReplay measures what it takes to replay a request, beside the same replay
// in which the policy is asked before every step.
func RunReplay(ctx context.Context, o ReplayOptions) (*Report, error) {
	if err := bench.Known("policy", o.Policies, policy.Names()); err != nil {
		return nil, err
	}
	w := &replayWorld{ctx: ctx, options: o, cell: replay.Config{Profile: o.Profile}}
	if err := w.prepare(); err != nil {
		return nil, err
	}
	var tasks []Task
	for _, name := range o.Policies {
		t := Task{
			What: fmt.Sprintf("a request of %s, load %g, policy %s", o.Workload, o.Load, name),
			Ours: func() (Lap, error) { return w.replay(name, o.Requests, false) }, Beside: "step by step",
			// Ratios are of times for one request, so the slow way replays fewer.
			Theirs: func() (Lap, error) { return w.replay(name, max(o.Requests/10, 1), true) },
		}
		if name == "stock" {
			t.Bound = replayBound
		}
		tasks = append(tasks, t)
	}
	return Measure(ctx, o.Options, tasks)
}

// replayWorld is the cell that workloads are replayed on, and how dense they are.
type replayWorld struct {
	ctx     context.Context
	options ReplayOptions
	cell    replay.Config
	scale   float64
}

// capacityRequests are enough for a cell of one engine of the built-in profiles.
const capacityRequests = 8192

func (w *replayWorld) prepare() error {
	o := &w.options
	if o.Requests < 1 || o.Requests > 100_000_000 || !(o.Load > 0 && o.Load <= 10) {
		return fmt.Errorf("%w: %d requests at load %g; 1 to 100,000,000 at more than 0, up to 10", bench.ErrOptions, o.Requests, o.Load)
	}
	w.scale = 1
	source, info, err := w.open()
	if err != nil {
		return fmt.Errorf("%w: %w", bench.ErrOptions, err)
	}
	defer source.Close()
	perSecond, err := replay.Capacity(w.ctx, w.cell, source, capacityRequests)
	if err != nil {
		return err
	}
	w.scale = o.Load * perSecond / info.Rate
	return nil
}

func (w *replayWorld) open() (workload.Source, workload.Info, error) {
	d := &days{world: w, seed: 42}
	info, err := d.next()
	return d, info, err
}

// days is a workload that goes on with another seed when it ends, at the time at
// which it ended.
type days struct {
	world *replayWorld
	workload.Source
	seed      uint64
	from, end time.Duration
	some      bool // of this source have come
	err       error
}

func (d *days) next() (workload.Info, error) {
	o := &d.world.options
	source, info, err := workload.Open(o.Workload, workload.Options{DataDir: o.DataDir, Seed: d.seed, Scale: d.world.scale})
	d.Source, d.from, d.end, d.seed, d.some = source, d.end, d.end+info.Duration, d.seed+1, false
	return info, err
}

func (d *days) Next() (workload.Request, bool) {
	for {
		r, more := d.Source.Next()
		if r.At += d.from; more {
			d.some = true
			return r, true
		}
		if !d.some || d.Source.Err() != nil {
			return r, false
		}
		if d.err = d.Source.Close(); d.err != nil {
			return r, false
		}
		if _, d.err = d.next(); d.err != nil {
			return r, false
		}
	}
}

func (d *days) Err() error {
	if d.err != nil {
		return d.err
	}
	return d.Source.Err()
}

func (w *replayWorld) replay(name string, requests int, singleStep bool) (Lap, error) {
	p, err := policy.New(name, policy.Options{})
	if err != nil {
		return Lap{}, err
	}
	source, _, err := w.open()
	if err != nil {
		return Lap{}, err
	}
	defer source.Close()
	config := w.cell
	config.SingleStep = singleStep
	start := time.Now()
	r, err := replay.Run(w.ctx, config, replay.First(source, int64(requests)), p)
	if err != nil {
		return Lap{}, err
	}
	return Lap{int(r.Requests.Arrived), time.Since(start)}, nil
}

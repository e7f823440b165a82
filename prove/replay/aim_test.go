package replay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"meridian/decide/policy"
	"meridian/internal/rounds"
	"meridian/prove/replay"
	"meridian/prove/replay/workload"
)

// replayBound is a million requests a minute, in nanoseconds for one.
const replayBound = 60_000

const (
	replayed = "servegen-r1"
	load     = 0.9 // of what the engine can
)

// aims are what it takes to replay a request on one engine, beside the same replay in which
// the policy is asked before every step.
func aims(ctx context.Context, requests int) ([]rounds.Task, error) {
	w := &loaded{ctx: ctx, cell: replay.Config{Profile: replay.Profiles()[0]}}
	if err := w.prepare(); err != nil {
		return nil, err
	}
	var tasks []rounds.Task
	for _, name := range []string{"stock", "static-budget"} {
		t := rounds.Task{
			What: "a request of " + replayed + ", policy " + name,
			Ours: func() (rounds.Lap, error) { return w.replay(name, requests, false) }, Beside: "step by step",
			// Ratios are of times for one request, so the slow way replays fewer.
			Theirs: func() (rounds.Lap, error) { return w.replay(name, (requests+9)/10, true) },
		}
		if name == "stock" {
			t.Bound = replayBound
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

func BenchmarkAim(b *testing.B) {
	tasks, err := aims(b.Context(), 20_000)
	if err != nil {
		b.Fatal(err)
	}
	rounds.RunAll(b, tasks)
}

func TestAims(t *testing.T) {
	tasks, err := aims(t.Context(), 200)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if _, err := rounds.Once(task); err != nil {
			t.Errorf("%s: %v", task.What, err)
		}
	}
}

// No requests are nothing to measure.
func TestAimOfNoRequest(t *testing.T) {
	tasks, err := aims(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rounds.Once(tasks[0]); !errors.Is(err, rounds.ErrNothing) {
		t.Error(err)
	}
}

// loaded is the cell that workloads are replayed on, and how dense they are.
type loaded struct {
	ctx   context.Context
	cell  replay.Config
	scale float64
}

// capacityRequests are enough for a cell of one engine of the built-in profiles.
const capacityRequests = 8192

func (w *loaded) prepare() error {
	w.scale = 1
	source, info, err := w.open()
	if err != nil {
		return err
	}
	defer source.Close()
	perSecond, err := replay.Capacity(w.ctx, w.cell, source, capacityRequests)
	w.scale = load * perSecond / info.Rate
	return err
}

func (w *loaded) open() (workload.Source, workload.Info, error) {
	d := &days{world: w, seed: 42}
	info, err := d.next()
	return d, info, err
}

// days is a workload that goes on with another seed when it ends, at the time at
// which it ended.
type days struct {
	world *loaded
	workload.Source
	seed      uint64
	from, end time.Duration
	some      bool // of this source have come
	err       error
}

func (d *days) next() (workload.Info, error) {
	source, info, err := workload.Open(replayed, workload.Options{Seed: d.seed, Scale: d.world.scale})
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

func (w *loaded) replay(name string, requests int, singleStep bool) (rounds.Lap, error) {
	p, err := policy.New(name, policy.Options{})
	if err != nil {
		return rounds.Lap{}, err
	}
	source, _, err := w.open()
	if err != nil {
		return rounds.Lap{}, err
	}
	defer source.Close()
	config := w.cell
	config.SingleStep = singleStep
	start := time.Now()
	r, err := replay.Run(w.ctx, config, replay.First(source, int64(requests)), p)
	if err != nil {
		return rounds.Lap{}, err
	}
	return rounds.Lap{Operations: int(r.Requests.Arrived), Took: time.Since(start)}, nil
}

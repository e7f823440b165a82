package store

import (
	"context"
	"fmt"
	"time"

	"meridian/internal/rounds"
	"meridian/keep/store"
	"meridian/prove/bench"
)

const (
	// openings of a round, each of an object of a page.
	openings  = 500
	openBytes = 256 << 10
	// openNanoseconds is what the median may take.
	openNanoseconds = 150_000
)

// opening measures what it takes to be told where to write, from another process
// and over loopback.
type opening struct {
	*cell
	median float64 // of the last round, in ns
	round  int
}

func openOpening(ctx context.Context, o PartsOptions) (*opening, error) {
	c, err := openCell(ctx, Options{
		Objects: []bench.Size{{Bytes: openBytes}}, Ops: []string{put}, Clients: []int{1}, Total: bench.Size{Bytes: openings * openBytes},
		Dir: o.Dir, OwnCommand: o.OwnCommand,
	}, overTCP, 1)
	if err != nil {
		return nil, err
	}
	return &opening{cell: c}, nil
}

func (p *opening) task(ctx context.Context) rounds.Task {
	return rounds.Task{
		What: "open for writing, over loopback, the median", Unit: "ns", Bound: openNanoseconds,
		Score: func() float64 { return p.median }, Ours: func() (rounds.Lap, error) { return p.lap(ctx) },
	}
}

func (p *opening) lap(ctx context.Context) (lap rounds.Lap, err error) {
	p.round++
	each := make([]time.Duration, openings)
	for i := range each {
		start := time.Now()
		plan, err := p.store.OpenForWrite(ctx, key(0, p.round, i), openBytes, store.PutOptions{})
		each[i] = time.Since(start)
		lap.Took += each[i]
		if err == nil {
			err = plan.Abort(ctx)
		}
		if err != nil {
			return lap, fmt.Errorf("opening %d: %w", i, err)
		}
	}
	lap.Operations = openings
	p.median = 1000 * bench.Percentile(each, 50)
	return lap, nil
}

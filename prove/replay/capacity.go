package replay

import (
	"context"
	"fmt"

	"meridian/decide/policy"
	"meridian/prove/replay/workload"
)

// Capacity is how many requests a second a cell ends when there is always one
// more waiting, under the policy stock: what loads are parts of. It reads so many
// requests of the source, whenever they arrive, and counts from when as many
// have ended as were there at first, until the last has come.
func Capacity(ctx context.Context, config Config, source workload.Source, requests int64) (perSecond float64, err error) {
	config = config.withDefaults()
	config.Closed = (config.Replicas + config.Prefills) * int(config.MaxSequences)
	config.Closed += config.Closed / 4
	if requests < 4*int64(config.Closed) {
		return 0, fmt.Errorf("%w: %d requests do not show the capacity of a cell that holds %d at once; use at least %d",
			ErrConfig, requests, config.Closed, 4*config.Closed)
	}
	stock, err := policy.New("stock", policy.Options{})
	if err != nil {
		return 0, err
	}
	c, err := newCell(config, First(source, requests), stock)
	if err != nil {
		return 0, err
	}
	if err := c.pull(); err != nil {
		return 0, err
	}
	var from ps
	var ended int64
	for turn := 0; c.hasNext; turn++ {
		if turn%4096 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if more, err := c.turn(); err != nil || !more {
			return 0, err
		}
		if from == 0 && c.ended >= int64(config.Closed) {
			from, ended = c.now, c.ended
		}
	}
	if from == 0 || c.last == from {
		return 0, fmt.Errorf("%w: the workload ended after %d requests, of which %d fill the cell: too few to tell its capacity", ErrConfig, c.number, config.Closed)
	}
	return float64(c.endedLast-ended) / (c.last - from).seconds(), nil
}

// First is the beginning of a source: so many of its requests.
func First(source workload.Source, requests int64) workload.Source {
	return &first{Source: source, left: requests}
}

type first struct {
	workload.Source
	left int64
}

func (f *first) Next() (workload.Request, bool) {
	if f.left == 0 {
		return workload.Request{}, false
	}
	f.left--
	return f.Source.Next()
}

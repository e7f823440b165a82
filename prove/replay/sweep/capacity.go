package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"meridian/prove/replay"
	"meridian/prove/replay/workload"
)

// capacityTimes is how many requests capacity is measured with, for each that an
// engine can run at once: about as many, as chance decides how many arrive.
const capacityTimes = 8

// capacity is how many requests of the window a second the cell serves, with a
// seed that no run has.
func (o *Options) capacity(ctx context.Context, info workload.Info) (float64, error) {
	c := o.Cell
	engines := max(1, c.Replicas) + c.Prefills
	need := capacityTimes * engines * int(cmp.Or(c.MaxSequences, c.Profile.MaxSequences))
	source, err := o.sample(info, need)
	if err != nil {
		return 0, err
	}
	perSecond, err := replay.Capacity(ctx, c, source, 2*int64(need))
	err = errors.Join(err, source.Close())
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("%w: what the cell can serve was not known yet, and no run was done", ErrInterrupted)
	case errors.Is(err, replay.ErrConfig):
		return 0, fmt.Errorf("%w: what the cell can serve of %s cannot be found out, so give it: %w", ErrOptions, o.Workload, err)
	case err != nil:
		return 0, err
	}
	return perSecond, nil
}

// capacitySeed is not among the seeds of runs, which start at 1.
const capacitySeed = 0

// sample draws about so many requests from the whole window, thinly where it has
// more: an hour does not end as it begins.
func (o *Options) sample(info workload.Info, requests int) (workload.Source, error) {
	source, _, err := o.open(float64(requests)/(info.Rate*info.Duration.Seconds()), capacitySeed, o.Duration)
	return source, err
}

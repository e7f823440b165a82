package bench

import (
	"context"
	"errors"
	"fmt"

	"meridian/internal/rounds"
)

// Options is how to measure what operations cost.
type Options struct {
	Setting
	Rounds int

	children []int // processes that are measured beside
}

// Beside names a process that is part of the measurement.
func (o *Options) Beside(pid int) { o.children = append(o.children, pid) }

// Measure runs the tasks, round by round, after a round that does not count.
func Measure(ctx context.Context, o Options, tasks []rounds.Task) (*Costs, error) {
	if o.Rounds < 1 || o.Rounds > 1000 {
		return nil, fmt.Errorf("%w: %d rounds; 1 to 1000", ErrOptions, o.Rounds)
	}
	meter := StartMeter(o.children)
	r := &Costs{Head: NewHead(o.Version), Rows: []Cost{}, rounds: o.Rounds}
	for i, task := range tasks {
		var scores rounds.Scores
		for round := range o.Rounds + 1 {
			o.Tell(Progress{Row: i + 1, Rows: len(tasks), What: task.What, Round: round, Rounds: o.Rounds, Who: "meridian"})
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := scores.Add(&task, round > 0); errors.Is(err, rounds.ErrNothing) {
				return nil, fmt.Errorf("%s: %w: %w", task.What, ErrOptions, err)
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", task.What, err)
			}
		}
		r.Rows = append(r.Rows, newCost(task, scores))
	}
	r.Others = meter.Others()
	return r, nil
}

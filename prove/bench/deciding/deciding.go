// Package deciding measures the rooms that decide, each in a file of its own:
// what one operation costs, beside a plain way of doing the same in the same
// rounds. Only ratios of one run can be compared.
package deciding

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"meridian/prove/bench"
)

// Options is how to measure.
type Options struct {
	Rounds   int
	Version  string // of this build, for the report
	Progress func(bench.Progress)

	children []int // processes that are measured beside
}

// Beside names a process that is part of the measurement.
func (o *Options) Beside(pid int) { o.children = append(o.children, pid) }

// Lap is what one round took.
type Lap struct {
	Operations int
	Took       time.Duration
}

// Task is one row to be measured.
type Task struct {
	What string
	// PerSecond counts millions of operations a second; otherwise the score is
	// nanoseconds for one.
	PerSecond bool
	// Score, where given, is asked after each round for what counts instead of
	// its time, in Unit; less is better.
	Score func() float64
	Unit  string
	// Bound is what the score is to keep: not above it, or, of PerSecond, not
	// below. 0 means that nothing is promised.
	Bound float64
	Ours  func() (Lap, error)
	// Beside names the plain way, and Theirs does it; none if Theirs is nil.
	Beside string
	Theirs func() (Lap, error)
}

// Measure runs the tasks, round by round, after a round that does not count.
func Measure(ctx context.Context, o Options, tasks []Task) (*Report, error) {
	if o.Rounds < 1 || o.Rounds > 1000 {
		return nil, fmt.Errorf("%w: %d rounds; 1 to 1000", bench.ErrOptions, o.Rounds)
	}
	meter := bench.StartMeter(o.children)
	r := &Report{Rows: []Row{}, options: o, date: time.Now()}
	for i, task := range tasks {
		var scores rounds
		for round := range o.Rounds + 1 {
			if o.Progress != nil {
				o.Progress(bench.Progress{Row: i + 1, Rows: len(tasks), What: task.What, Round: round, Rounds: o.Rounds, Who: "meridian"})
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := scores.add(task, round > 0); err != nil {
				return nil, fmt.Errorf("%s: %w", task.What, err)
			}
		}
		r.Rows = append(r.Rows, newRow(task, scores))
	}
	r.Others = meter.Others()
	return r, nil
}

// rounds is what a task gave so far.
type rounds struct{ ours, theirs, ratios, allocations []float64 }

func (s *rounds) add(task Task, counts bool) error {
	ours, allocations, err := lap(task.Ours)
	if err != nil {
		return err
	}
	theirs := ours
	if task.Theirs != nil {
		if theirs, _, err = lap(task.Theirs); err != nil {
			return err
		}
	}
	if !counts {
		return nil
	}
	s.ours = append(s.ours, task.score(ours))
	s.allocations = append(s.allocations, allocations)
	if task.Theirs != nil {
		s.theirs = append(s.theirs, task.score(theirs))
		s.ratios = append(s.ratios, perOperation(theirs)/perOperation(ours))
	}
	return nil
}

// lap runs one round, with a heap that was just swept, and says how often it
// allocated for one operation.
func lap(round func() (Lap, error)) (l Lap, allocations float64, err error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if l, err = round(); err != nil {
		return l, 0, err
	}
	runtime.ReadMemStats(&after)
	if l.Operations < 1 || l.Took <= 0 {
		return l, 0, fmt.Errorf("%w: a round of %d operations in %v measures nothing: measure more", bench.ErrOptions, l.Operations, l.Took)
	}
	return l, float64(after.Mallocs-before.Mallocs) / float64(l.Operations), nil
}

func perOperation(l Lap) float64 { return float64(l.Took.Nanoseconds()) / float64(l.Operations) }

func (t Task) score(l Lap) float64 {
	if t.Score != nil {
		return t.Score()
	}
	if t.PerSecond {
		return 1000 / perOperation(l)
	}
	return perOperation(l)
}

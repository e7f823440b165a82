// Package rounds measures what one operation costs, round by round, and in turn with it a
// plain way of doing the same. Only ratios of one run can be compared.
package rounds

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// ErrNothing means that a round was too short to say anything.
var ErrNothing = errors.New("rounds")

// Lap is what one round took.
type Lap struct {
	Operations int
	Took       time.Duration
}

// Task is what is measured.
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

// Name is what a benchmark of it is called.
func (t *Task) Name() string {
	if t.Theirs == nil {
		return t.What
	}
	return t.What + "/beside=" + t.Beside
}

// UnitOf is what scores are in.
func (t *Task) UnitOf() string {
	switch {
	case t.Score != nil:
		return t.Unit
	case t.PerSecond:
		return "M/s"
	}
	return "ns"
}

// Keeps tells whether a score keeps the bound.
func (t *Task) Keeps(score float64) bool {
	if t.PerSecond {
		return score >= t.Bound
	}
	return t.Bound == 0 || score <= t.Bound
}

// Scores are those of the rounds so far. Ratios are how many times as fast as the plain way
// one operation was, Allocations how often it allocated.
type Scores struct{ Ours, Theirs, Ratios, Allocations []float64 }

// Add measures a round more; one that does not count warms up.
func (s *Scores) Add(t *Task, counts bool) error {
	ours, allocations, err := lap(t.Ours)
	if err != nil {
		return err
	}
	theirs := ours
	if t.Theirs != nil {
		if theirs, _, err = lap(t.Theirs); err != nil {
			return err
		}
	}
	if !counts {
		return nil
	}
	s.Ours = append(s.Ours, t.score(ours))
	s.Allocations = append(s.Allocations, allocations)
	if t.Theirs != nil {
		s.Theirs = append(s.Theirs, t.score(theirs))
		s.Ratios = append(s.Ratios, perOperation(theirs)/perOperation(ours))
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
		return l, 0, fmt.Errorf("%w: a round of %d operations in %v measures nothing: measure more", ErrNothing, l.Operations, l.Took)
	}
	return l, float64(after.Mallocs-before.Mallocs) / float64(l.Operations), nil
}

func perOperation(l Lap) float64 { return float64(l.Took.Nanoseconds()) / float64(l.Operations) }

func (t *Task) score(l Lap) float64 {
	if t.Score != nil {
		return t.Score()
	}
	if t.PerSecond {
		return 1000 / perOperation(l)
	}
	return perOperation(l)
}

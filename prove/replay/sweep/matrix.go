package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrInterrupted is wrapped by what is said of runs that were not done because
// the context ended.
var ErrInterrupted = errors.New("interrupted")

// job is one run: a candidate at a load with a seed.
type job struct {
	candidate Candidate
	load      float64
	seed      uint64
}

func (j job) String() string {
	return fmt.Sprintf("%s at load %v, seed %d", j.candidate.Name, j.load, j.seed)
}

// Progress is how far the runs are.
type Progress struct {
	Done, Runs int
	// Part is how much of all work is done, Left about how long the rest takes:
	// 0 until there is something to judge by.
	Part       float64
	Took, Left time.Duration
	// Ended is the run that has just come to its end, if one has.
	Ended string
}

func (p Progress) String() string {
	left := ""
	if p.Left > 0 {
		left = fmt.Sprintf(", about %v left", p.Left.Round(time.Second))
	}
	return fmt.Sprintf("%d of %d runs, %.0f %%%s", p.Done, p.Runs, 100*p.Part, left)
}

// matrix does jobs, several at a time. Its lock guards what follows it, and is
// held while progress is told, so that lines come in order.
type matrix struct {
	jobs     []job
	progress func(Progress)
	began    time.Time

	mu    sync.Mutex
	parts []float64 // of each job that is done
	done  []bool
}

// each does all jobs, in no order that a caller may rely on, and returns their
// results in the order of the jobs. The first error ends them all.
func each[T any](ctx context.Context, workers int, m *matrix, do func(ctx context.Context, j job, part func(float64)) (T, error)) ([]T, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	m.began, m.parts, m.done = time.Now(), make([]float64, len(m.jobs)), make([]bool, len(m.jobs))
	results := make([]T, len(m.jobs))
	next := m.order()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workersDone sync.WaitGroup
	for range min(workers, len(m.jobs)) {
		workersDone.Go(func() {
			for inner.Err() == nil {
				i, more := next()
				if !more {
					return
				}
				result, err := do(inner, m.jobs[i], func(part float64) { m.tell(i, part, false) })
				if err != nil {
					cancel(fmt.Errorf("%v: %w", m.jobs[i], err))
					return
				}
				results[i] = result
				m.tell(i, 1, true)
			}
		})
	}
	workersDone.Wait()
	if ctx.Err() != nil {
		return nil, m.interrupted()
	}
	if err := context.Cause(inner); err != nil {
		return nil, err
	}
	return results, nil
}

// order hands out jobs, the heaviest first, so that no long one is left alone
// at the end.
func (m *matrix) order() func() (int, bool) {
	order := make([]int, len(m.jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.jobs[b].load, m.jobs[a].load) })
	var mu sync.Mutex
	return func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(order) == 0 {
			return 0, false
		}
		i := order[0]
		order = order[1:]
		return i, true
	}
}

// tell says how much of a job is done.
func (m *matrix) tell(i int, part float64, ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts[i] = min(max(part, m.parts[i]), 1)
	m.done[i] = ended
	if m.progress == nil {
		return
	}
	p := Progress{Runs: len(m.jobs), Took: time.Since(m.began)}
	if ended {
		p.Ended = m.jobs[i].String()
	}
	whole, behind := 0.0, 0.0 // a run takes about as long as it has requests
	for k, j := range m.jobs {
		whole += j.load
		behind += j.load * m.parts[k]
		if m.done[k] {
			p.Done++
		}
	}
	p.Part = behind / whole
	if p.Part > 0.005 && p.Part < 1 {
		p.Left = time.Duration(float64(p.Took) * (1 - p.Part) / p.Part)
	}
	m.progress(p)
}

// namedRuns is how many runs an interruption names.
const namedRuns = 8

// interrupted says what was not done.
func (m *matrix) interrupted() error {
	var missing []string
	for i, j := range m.jobs {
		if !m.done[i] {
			missing = append(missing, j.String())
		}
	}
	count := len(missing)
	if count > namedRuns {
		missing = append(missing[:namedRuns], fmt.Sprintf("and %d more", count-namedRuns))
	}
	return fmt.Errorf("%w: %d of %d runs were not done: %s", ErrInterrupted, count, len(m.jobs), strings.Join(missing, "; "))
}

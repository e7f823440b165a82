package rounds

import (
	"fmt"
	"os"
	"slices"
)

// Bounds is the variable of the environment that makes benchmarks fail whose bound is not
// kept: on a machine that does something else meanwhile a bound says little.
const Bounds = "MERIDIAN_BENCH_BOUNDS"

// Benchmark is what is asked of a *testing.B.
type Benchmark interface {
	Helper()
	Loop() bool
	ReportMetric(n float64, unit string)
	Error(args ...any)
	Fatal(args ...any)
}

// Judge measures the tasks of a benchmark, and says at the end which missed their bounds: of
// a benchmark that fails no figures are printed.
type Judge struct{ missed []string }

// Run measures a task, a round each time the benchmark loops, after a round that does not
// count. What is reported are medians, and of ours and of the ratio to the plain way also
// the least and the most; `-benchtime 15x` is 15 rounds.
func (j *Judge) Run(b Benchmark, t Task) {
	b.Helper()
	var s Scores
	if err := s.Add(&t, false); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := s.Add(&t, true); err != nil {
			b.Fatal(err)
		}
	}
	unit := t.UnitOf()
	b.ReportMetric(0, "ns/op") // of a whole round of both: it says nothing, and 0 is left out
	report(b, s.Ours, unit)
	b.ReportMetric(median(s.Allocations), "allocs")
	if t.Theirs != nil {
		b.ReportMetric(median(s.Theirs), unit+"-beside")
		report(b, s.Ratios, "ratio")
	}
	if score := median(s.Ours); !t.Keeps(score) {
		j.missed = append(j.missed, fmt.Sprintf("%s: %.4g %s, the bound is %.4g", t.What, score, unit, t.Bound))
	}
}

// RunAll measures tasks, each as a benchmark of its own name within b, and judges them.
func RunAll[B interface {
	Benchmark
	Run(name string, f func(b B)) bool
}](b B, tasks []Task) {
	b.Helper()
	var judge Judge
	for _, task := range tasks {
		b.Run(task.Name(), func(b B) { judge.Run(b, task) })
	}
	judge.Verdict(b)
}

// Verdict fails the benchmark around all tasks for each that missed its bound.
func (j *Judge) Verdict(b Benchmark) {
	b.Helper()
	if os.Getenv(Bounds) == "" {
		return
	}
	for _, missed := range j.missed {
		b.Error(missed)
	}
}

func report(b Benchmark, scores []float64, unit string) {
	b.ReportMetric(median(scores), unit)
	b.ReportMetric(slices.Min(scores), unit+"-min")
	b.ReportMetric(slices.Max(scores), unit+"-max")
}

func median(scores []float64) float64 {
	sorted := slices.Sorted(slices.Values(scores))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Once measures a single round, and returns how often an operation of ours allocated: for
// tests that a benchmark works.
func Once(t Task) (allocations float64, err error) {
	var s Scores
	for _, counts := range []bool{false, true} {
		if err := s.Add(&t, counts); err != nil {
			return 0, err
		}
	}
	return s.Allocations[0], nil
}

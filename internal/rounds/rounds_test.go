package rounds

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

// played is a benchmark that loops three times.
type played struct {
	loops   int
	metrics map[string]float64
	failed  string
}

func (p *played) Helper() {}

func (p *played) Loop() bool {
	p.loops++
	return p.loops <= 3
}

func (p *played) ReportMetric(n float64, unit string) { p.metrics[unit] = n }

func (p *played) Error(args ...any) { p.failed = fmt.Sprint(args...) }

func (p *played) Fatal(args ...any) { p.failed = fmt.Sprint(args...) }

func took(each ...time.Duration) func() (Lap, error) {
	next := 0
	return func() (Lap, error) {
		next++
		return Lap{1000, each[(next-1)%len(each)]}, nil
	}
}

func TestRun(t *testing.T) {
	us := time.Microsecond
	for name, c := range map[string]struct {
		task   Task
		want   map[string]float64
		failed string
	}{
		"beside": {
			Task{Bound: 10, Ours: took(9*us, 10*us, 5*us, 20*us), Theirs: took(40 * us)},
			map[string]float64{"ns": 10, "ns-min": 5, "ns-max": 20, "ns-beside": 40, "ratio": 4, "ratio-min": 2, "ratio-max": 8},
			"",
		},
		"missed":       {Task{What: "it", Bound: 9, Ours: took(10 * us)}, map[string]float64{"ns": 10, "ns-min": 10, "ns-max": 10}, "it: 10 ns, the bound is 9"},
		"fast enough":  {Task{PerSecond: true, Bound: 100, Ours: took(10 * us)}, map[string]float64{"M/s": 100, "M/s-min": 100, "M/s-max": 100}, ""},
		"too slow":     {Task{What: "it", PerSecond: true, Bound: 101, Ours: took(10 * us)}, map[string]float64{"M/s": 100, "M/s-min": 100, "M/s-max": 100}, "it: 100 M/s, the bound is 101"},
		"not promised": {Task{Ours: took(10 * us)}, map[string]float64{"ns": 10, "ns-min": 10, "ns-max": 10}, ""},
		"a score": {
			Task{What: "it", Bound: 1, Unit: "bytes", Score: func() float64 { return 2 }, Ours: took(us)},
			map[string]float64{"bytes": 2, "bytes-min": 2, "bytes-max": 2},
			"it: 2 bytes, the bound is 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, judged := range []string{"", "1"} {
				t.Setenv(Bounds, judged)
				task := c.task
				if name == "beside" { // each run begins with the first round
					task.Ours = took(9*us, 10*us, 5*us, 20*us)
				}
				b := &played{metrics: map[string]float64{}}
				var j Judge
				j.Run(b, task)
				j.Verdict(b)
				failed := c.failed
				if judged == "" {
					failed = ""
				}
				delete(b.metrics, "ns/op")
				delete(b.metrics, "allocs")
				if !maps.Equal(b.metrics, c.want) || b.failed != failed {
					t.Errorf("judged %q: %v, %q; want %v, %q", judged, b.metrics, b.failed, c.want, failed)
				}
			}
		})
	}
}

func TestNothingIsMeasured(t *testing.T) {
	nothing := func() (Lap, error) { return Lap{}, nil }
	if _, err := Once(Task{Ours: nothing}); !errors.Is(err, ErrNothing) || !strings.Contains(err.Error(), "0 operations in 0s measures nothing") {
		t.Error(err)
	}
	if _, err := Once(Task{Ours: took(time.Second), Theirs: nothing}); !errors.Is(err, ErrNothing) {
		t.Error("beside:", err)
	}
	broken := errors.New("broken")
	if _, err := Once(Task{Ours: func() (Lap, error) { return Lap{}, broken }}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

var kept []*int

func TestAllocationsAreCounted(t *testing.T) {
	allocations, err := Once(Task{Ours: func() (Lap, error) {
		start := time.Now()
		for range 1000 {
			kept = append(kept[:0], new(int))
		}
		return Lap{1000, time.Since(start)}, nil
	}})
	if err != nil || allocations < 0.9 || allocations > 1.2 {
		t.Errorf("%v allocations an operation, %v", allocations, err)
	}
}

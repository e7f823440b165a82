package sim

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// SeedOptions says which worlds to look at.
type SeedOptions struct {
	World Kind // default Agents
	// From is the first seed; Seeds how many there are, 0 for no end.
	From, Seeds uint64
	// For bounds how long the run takes; 0 for no bound. One that has neither
	// is refused.
	For time.Duration
	// Faults that may be drawn in worlds of agents; nil means all.
	Faults []Fault
	// Jobs is how many worlds are looked at at a time; default one per core.
	Jobs int
	// Failures ends the run after so many; default 1.
	Failures int
	// Progress, where given, is called after every world, by one goroutine at a
	// time.
	Progress func(Progress)
}

// Progress is how far a run of seeds has come.
type Progress struct {
	Worlds, Seeds uint64 // Seeds: 0 when there is no end
	Failures      int
	Took, For     time.Duration
}

// Report is what a run of seeds found.
type Report struct {
	Tally    Tally
	Failures []*Result // by seed
	Took     time.Duration
}

// RunSeeds lives through one world after the other, on several cores: they have
// nothing in common. It ends when all are through, when time is over, when ctx
// is, or with enough failures.
func RunSeeds(ctx context.Context, o SeedOptions) (*Report, error) {
	if o.Seeds == 0 && o.For == 0 {
		return nil, fmt.Errorf("sim: a run without end: say how many seeds, or for how long")
	}
	if o.Jobs <= 0 {
		o.Jobs = runtime.GOMAXPROCS(0)
	}
	if o.Failures <= 0 {
		o.Failures = 1
	}
	h := &seedRun{options: o, start: time.Now()}
	var jobs sync.WaitGroup
	for range o.Jobs {
		jobs.Go(func() { h.work(ctx) })
	}
	jobs.Wait()
	h.report.Took = time.Since(h.start)
	slices.SortFunc(h.report.Failures, func(x, y *Result) int { return cmp.Compare(x.Options.Seed, y.Options.Seed) })
	return &h.report, ctx.Err()
}

// patience is how long a world may take by the real clock: thousands of times
// what it does take.
const patience = 30 * time.Second

// ended waits for a world, and is false when it does not end.
func ended(done <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func allStacks() string {
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

type seedRun struct {
	options SeedOptions
	start   time.Time

	mu     sync.Mutex // protects the rest
	next   uint64
	report Report
}

// work takes one seed after the other.
func (h *seedRun) work(ctx context.Context) {
	var s reusable
	defer s.arenas.close()
	for {
		seed, more := h.take()
		if !more || ctx.Err() != nil {
			return
		}
		r := s.run(Options{World: h.options.World, Seed: seed, Faults: h.options.Faults})
		h.finish(r)
		if r.Violation == nil {
			s.reuse(r)
		}
	}
}

func (h *seedRun) take() (seed uint64, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &h.options
	switch {
	case o.Seeds > 0 && h.next == o.Seeds, o.For > 0 && time.Since(h.start) >= o.For, len(h.report.Failures) >= o.Failures:
		return 0, false
	}
	h.next++
	return o.From + h.next - 1, true
}

func (h *seedRun) finish(r *Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report.Tally.Add(&r.Tally)
	if r.Violation != nil {
		h.report.Failures = append(h.report.Failures, r)
	}
	if h.options.Progress != nil {
		h.options.Progress(Progress{
			Worlds: h.report.Tally.Worlds, Seeds: h.options.Seeds, Failures: len(h.report.Failures),
			Took: time.Since(h.start), For: h.options.For,
		})
	}
}

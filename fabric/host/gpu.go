package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"meridian/fabric"
	"meridian/fabric/link"
	"meridian/mem"
	"meridian/mem/vram"
)

// gpu is what takes parts of which some memory, on either side, is a GPU's: hands of
// its own, which launch kernels and wait for them. A GPU may let them wait for as long
// as it likes, so they hold no lock meanwhile; a fence waits for them, as long as its
// caller does. A nil gpu takes nothing.
type gpu struct {
	devices *vram.Pool
	hands   *pool
	logger  *slog.Logger

	mu      sync.Mutex // protects the rest
	running map[*gpuJob]struct{}
	own     map[uint64]*reach // regions of host memory, as GPUs see them
}

// gpuHands is how many there are: tables of blocks are made by the CPU, and one core
// makes them slower than a GPU reads them.
const gpuHands = 8

func newGPU(devices *vram.Pool, hands *pool, logger *slog.Logger) *gpu {
	return &gpu{devices: devices, hands: hands, logger: logger, running: make(map[*gpuJob]struct{}), own: make(map[uint64]*reach)}
}

// take has hands copy a part, unless all of it lies in host memory: that is false.
func (g *gpu) take(t *link.Taking, b *borrowed, loans []*loan, compare bool) bool {
	if g == nil || !concerns(t, loans) {
		return false
	}
	j := &gpuJob{gpu: g, taking: t, borrowed: b, loans: loans, compare: compare, from: t.From.Walk(), to: t.In.Walk}
	bytes := j.to.Left()
	j.quantum = min(max(bytes/gpuHands, leastQuantum), mostQuantum)
	j.unfinished = int(max(1, (bytes+j.quantum-1)/j.quantum))
	g.mu.Lock()
	g.running[j] = struct{}{}
	g.mu.Unlock()
	g.hands.do(j, j.unfinished, false)
	return true
}

// concerns reports whether some memory of a part is a GPU's.
func concerns(t *link.Taking, loans []*loan) bool {
	for _, l := range loans {
		if l.section == nil {
			return true
		}
	}
	if t.Enter() != nil {
		return false // it is over, as whoever takes it finds out
	}
	defer t.Leave()
	for i := range t.In.Bound.List {
		if t.In.Bound.Section(i).Kind() == mem.VRAM {
			return true
		}
	}
	return false
}

func (g *gpu) over(j *gpuJob) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, j)
}

// reachOf is how GPUs see a region of our own host memory. The caller holds the
// destination.
func (g *gpu) reachOf(region uint64, section *mem.Section) *reach {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.own[region]
	if r == nil {
		r = &reach{gpu: g, section: section}
		g.own[region] = r
	}
	return r
}

// quiet waits until nothing is placed by the jobs that match selects, which have been
// stopped.
func (g *gpu) quiet(ctx context.Context, match func(*gpuJob) bool) error {
	if g == nil {
		return nil
	}
	var busy []*gpuJob
	g.mu.Lock()
	for j := range g.running {
		if match(j) {
			busy = append(busy, j)
		}
	}
	g.mu.Unlock()
	for _, j := range busy {
		idle := make(chan struct{})
		j.taking.In.Bound.WhenIdle(func() { close(idle) })
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("%w: a GPU still works on memory of transfer %s: %w", fabric.ErrBusy, j.taking.In.ID, ctx.Err())
		}
	}
	return nil
}

// release waits until nothing is placed in a region that was fenced, and has GPUs
// forget it.
func (g *gpu) release(ctx context.Context, region uint64) error {
	if g == nil {
		return nil
	}
	if err := g.quiet(ctx, func(j *gpuJob) bool { return j.taking.In.Bound.Touches(region) }); err != nil {
		return err
	}
	g.mu.Lock()
	r := g.own[region]
	delete(g.own, region)
	g.mu.Unlock()
	if r == nil {
		return nil
	}
	// The section stays mapped until the GPU has let go of it, however long that takes.
	if err := r.section.Acquire(); err != nil {
		return err
	}
	c := &closing{r, make(chan struct{})}
	g.hands.do(c, 1, false)
	select {
	case <-c.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: a GPU does not let go of region %d: %w", fabric.ErrBusy, region, ctx.Err())
	}
}

// close ends the hands, for whom wait waits.
func (g *gpu) close() {
	if g != nil {
		g.hands.close()
	}
}

func (g *gpu) wait() {
	if g == nil {
		return
	}
	g.hands.wait()
	g.mu.Lock()
	own := g.own
	g.own = nil
	g.mu.Unlock()
	for _, r := range own {
		if err := r.section.Acquire(); err == nil {
			r.end()
		}
	}
}

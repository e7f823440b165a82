package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"meridian/move/fabric"
	"meridian/move/fabric/link"
	"meridian/move/mem"
	"meridian/move/mem/vram"
)

// gpu is what takes parts of which some memory, on either side, is a GPU's: copiers of
// its own, which launch kernels and wait for them. A GPU may let them wait for as long
// as it likes, so they hold no lock meanwhile; a fence waits for them, as long as its
// caller does. A nil gpu takes nothing.
type gpu struct {
	devices *vram.Pool
	copiers *pool
	logger  *slog.Logger

	mu      sync.Mutex // protects the rest
	running map[*gpuJob]struct{}
	own     map[uint64]*gpuMapping // regions of host memory, as GPUs see them
}

// gpuCopiers is how many there are: tables of blocks are made by the CPU, and one core
// makes them slower than a GPU reads them.
const gpuCopiers = 8

func newGPU(devices *vram.Pool, copiers *pool, logger *slog.Logger) *gpu {
	return &gpu{devices: devices, copiers: copiers, logger: logger, running: make(map[*gpuJob]struct{}), own: make(map[uint64]*gpuMapping)}
}

// take has copiers copy a part, unless all of it lies in host memory: that is false.
func (g *gpu) take(t *link.Taking, b *borrowed, loans []*loan, compare bool) bool {
	if g == nil {
		return false
	}
	some, onlyGPU := concerns(t, loans)
	if !some {
		return false
	}
	j := &gpuJob{gpu: g, taking: t, borrowed: b, loans: loans, compare: compare, from: t.From.Walk(), to: t.In.Walk}
	j.divide(onlyGPU)
	g.mu.Lock()
	g.running[j] = struct{}{}
	g.mu.Unlock()
	g.copiers.do(j, j.unfinished, false)
	return true
}

// concerns reports whether some memory of a part is a GPU's, and whether all is.
func concerns(t *link.Taking, loans []*loan) (some, all bool) {
	all = true
	for _, l := range loans {
		some, all = some || l.section == nil, all && l.section == nil
	}
	if t.Enter() != nil {
		return some, all // it is over, as the copier finds out
	}
	defer t.Leave()
	for i := range t.In.Bound.List {
		onGPU := t.In.Bound.Section(i).Kind() == mem.VRAM
		some, all = some || onGPU, all && onGPU
	}
	return some, all
}

func (g *gpu) over(j *gpuJob) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, j)
}

// reachOf is how GPUs see a region of our own host memory. The caller holds the
// destination.
func (g *gpu) reachOf(region uint64, section *mem.Section) *gpuMapping {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.own[region]
	if r == nil {
		r = &gpuMapping{gpu: g, section: section}
		g.own[region] = r
	}
	return r
}

// hold keeps the section of a region mapped until GPUs have let go of it, however long
// that takes.
func (g *gpu) hold(region uint64) *gpuMapping {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.own[region]
	if r != nil && !r.held {
		r.held = r.section.Acquire() == nil
	}
	return r
}

// touching lists the jobs that match selects.
func (g *gpu) touching(match func(*gpuJob) bool) (busy []*gpuJob) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for j := range g.running {
		if match(j) {
			busy = append(busy, j)
		}
	}
	return busy
}

// quiet waits until nothing is placed by the jobs that match selects, which have been
// stopped.
func (g *gpu) quiet(ctx context.Context, match func(*gpuJob) bool) error {
	if g == nil {
		return nil
	}
	for _, j := range g.touching(match) {
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
// forget it. They do so as soon as they can, also when ctx ends before.
func (g *gpu) release(ctx context.Context, region uint64) error {
	if g == nil {
		return nil
	}
	g.hold(region)
	let := &closing{over: make(chan struct{})}
	busy := g.touching(func(j *gpuJob) bool { return j.taking.In.Bound.Touches(region) })
	var left atomic.Int64
	left.Store(int64(len(busy)) + 1)
	idle := func() {
		if left.Add(-1) > 0 {
			return
		}
		let.gpuMapping = g.hold(region)
		g.mu.Lock()
		delete(g.own, region)
		g.mu.Unlock()
		if let.gpuMapping == nil {
			close(let.over)
			return
		}
		g.copiers.do(let, 1, false)
	}
	for _, j := range busy {
		j.taking.In.Bound.WhenIdle(idle)
	}
	idle()
	select {
	case <-let.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: a GPU still works on region %d: %w", fabric.ErrBusy, region, ctx.Err())
	}
}

// close ends the copiers, for whom wait waits.
func (g *gpu) close() {
	if g != nil {
		g.copiers.close()
	}
}

func (g *gpu) wait() {
	if g == nil {
		return
	}
	g.copiers.wait()
	g.mu.Lock()
	own := g.own
	g.own = nil
	g.mu.Unlock()
	for _, r := range own {
		if r.held = r.held || r.section.Acquire() == nil; r.held {
			r.end()
		}
	}
}

package host

import (
	"sync"

	"meridian/move/fabric"
)

// pool is copiers, and what waits for them. Tasks take turns, a quantum each, and a large
// one has several copiers at work.
type pool struct {
	copiers int
	workers sync.WaitGroup

	mu     sync.Mutex // protects the rest
	wake   *sync.Cond
	queue  []claim // a ring would save little: large jobs come back, small ones go
	idle   []copier
	closed bool
}

// task is what copiers do, some quanta at a time.
type task interface {
	// work does a quantum, and reports whether some of it is left for later.
	work(h copier) (more bool)
	fail(err error)
	// retire ends so many quanta; the last one ends the task.
	retire(quanta int)
}

// claim is what is left of a task that no copier has taken.
type claim struct {
	job    task
	quanta int
}

// newPool has a copier for each of some cells of the page.
func newPool(page *flagPage, first, copiers int) *pool {
	p := &pool{copiers: copiers}
	p.wake = sync.NewCond(&p.mu)
	for i := range copiers {
		p.idle = append(p.idle, page.copier(first+i))
	}
	for range copiers {
		p.workers.Go(p.work)
	}
	return p
}

// do starts a task of so many quanta, and does it at once if that is soon done and
// a copier is free: that saves the wake-up of a worker. The caller holds no lock.
func (p *pool) do(j task, quanta int, soon bool) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		j.fail(fabric.ErrClosed)
		j.retire(quanta)
		return
	}
	if !soon || len(p.queue) > 0 || len(p.idle) == 0 {
		p.queue = append(p.queue, claim{j, quanta})
		if quanta > 1 {
			p.wake.Broadcast()
		} else {
			p.wake.Signal()
		}
		p.mu.Unlock()
		return
	}
	h := p.takeCopier()
	p.mu.Unlock()
	p.use(h, j)
}

func (p *pool) takeCopier() copier {
	h := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return h
}

// use has a copier work on a job, and queues what it leaves.
func (p *pool) use(h copier, j task) {
	if j.work(h) {
		p.queueRest(j)
	}
	p.giveCopier(h)
}

func (p *pool) queueRest(j task) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.queue = append(p.queue, claim{j, 1})
	}
	p.mu.Unlock()
	if closed {
		j.fail(fabric.ErrClosed)
		j.retire(1)
	}
}

func (p *pool) giveCopier(h copier) {
	p.mu.Lock()
	p.idle = append(p.idle, h)
	if len(p.queue) > 0 {
		p.wake.Signal()
	}
	p.mu.Unlock()
}

func (p *pool) work() {
	for {
		p.mu.Lock()
		for (len(p.queue) == 0 || len(p.idle) == 0) && !p.closed {
			p.wake.Wait()
		}
		if p.closed {
			p.mu.Unlock()
			return
		}
		c := p.queue[0]
		p.queue[0] = claim{}
		p.queue = p.queue[1:]
		if c.quanta--; c.quanta > 0 {
			p.queue = append(p.queue, c)
		}
		h := p.takeCopier()
		p.mu.Unlock()
		p.use(h, c.job)
	}
}

// close ends the workers, for whom wait waits. All jobs have been made
// quiet before.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	left := p.queue
	p.queue = nil
	p.wake.Broadcast()
	p.mu.Unlock()
	for _, c := range left {
		c.job.fail(fabric.ErrClosed)
		c.job.retire(c.quanta)
	}
}

func (p *pool) wait() { p.workers.Wait() }

package host

import (
	"sync"

	"meridian/fabric"
)

// pool is the hands that copy, and what waits for them. Jobs take turns, a
// quantum each, and a large one has several hands at work.
type pool struct {
	hands   int
	workers sync.WaitGroup

	mu     sync.Mutex // protects the rest
	wake   *sync.Cond
	queue  []claim // a ring would save little: large jobs come back, small ones go
	idle   []hand
	closed bool
}

// claim is what is left of a job that no hand has taken.
type claim struct {
	job    *job
	quanta int
}

func newPool(page *flagPage) *pool {
	p := &pool{hands: page.hands}
	p.wake = sync.NewCond(&p.mu)
	for i := range page.hands {
		p.idle = append(p.idle, page.hand(i))
	}
	for range page.hands {
		p.workers.Go(p.work)
	}
	return p
}

// do starts a job, and does a small one at once when a hand is free: that saves
// the wake-up of a worker. The caller holds no lock.
func (p *pool) do(j *job) {
	j.unfinished = j.quanta()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		j.fail(fabric.ErrClosed)
		j.retire(j.unfinished)
		return
	}
	if j.bytes > pieceBytes || len(p.queue) > 0 || len(p.idle) == 0 {
		p.queue = append(p.queue, claim{j, j.unfinished})
		if j.unfinished > 1 {
			p.wake.Broadcast()
		} else {
			p.wake.Signal()
		}
		p.mu.Unlock()
		return
	}
	h := p.takeHand()
	p.mu.Unlock()
	var cuts [16]cut
	p.use(h, j, cuts[:0])
}

func (p *pool) takeHand() hand {
	h := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return h
}

// use has a hand work on a job, and queues what it leaves.
func (p *pool) use(h hand, j *job, cuts []cut) {
	if j.work(h, cuts) {
		p.queueRest(j)
	}
	p.giveHand(h)
}

func (p *pool) queueRest(j *job) {
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

func (p *pool) giveHand(h hand) {
	p.mu.Lock()
	p.idle = append(p.idle, h)
	if len(p.queue) > 0 {
		p.wake.Signal()
	}
	p.mu.Unlock()
}

func (p *pool) work() {
	cuts := make([]cut, 0, maxCuts)
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
		h := p.takeHand()
		p.mu.Unlock()
		p.use(h, c.job, cuts)
	}
}

// close ends the workers, for whom wait waits. Everybody's jobs have been made
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

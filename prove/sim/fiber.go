package sim

import "iter"

// fiber is a client's call that has to wait, as a coroutine: it runs until it
// waits, the world goes on, and it goes on itself when what it waits for is
// there. No two ever run at the same time.
type fiber struct {
	resume func() (struct{}, bool)
	yield  func(struct{}) bool
	ready  func() bool
}

// spawn runs body until it waits or ends.
func (p *process) spawn(body func()) {
	f := &fiber{}
	f.resume, _ = iter.Pull(func(yield func(struct{}) bool) {
		f.yield = yield
		body()
	})
	p.advance(f)
}

// advance lets a fiber run, and keeps it if it waits.
func (p *process) advance(f *fiber) {
	outer := p.world.fiber
	p.world.fiber, f.ready = f, nil
	f.resume()
	p.world.fiber = outer
	if f.ready != nil {
		p.waiting = append(p.waiting, f)
	}
}

// await is called on a fiber: it returns once ready is true, which is looked at
// after every event of the process, or when the process is gone.
func (p *process) await(ready func() bool) {
	f := p.world.fiber
	if f == nil {
		panic("sim: a call that waits was not made on a fiber")
	}
	for !ready() && !p.dead {
		f.ready = ready
		f.yield(struct{}{})
	}
}

// wakeFibers lets those go on that need not wait any longer.
func (p *process) wakeFibers() {
	waiting := p.waiting
	p.waiting = nil
	for _, f := range waiting {
		if f.ready() || p.dead {
			p.advance(f)
		} else {
			p.waiting = append(p.waiting, f)
		}
	}
}

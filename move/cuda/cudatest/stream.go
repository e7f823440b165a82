package cudatest

import (
	"sync"

	"meridian/move/cuda"
)

// stream does its work in order, on a goroutine of its own.
type stream struct {
	work chan func()
	over chan struct{}
	once sync.Once
}

// queueLength is how much a stream takes before a call waits, as CUDA's do.
const queueLength = 1024

func newStream() *stream {
	s := &stream{work: make(chan func(), queueLength), over: make(chan struct{})}
	go func() {
		defer close(s.over)
		for f := range s.work {
			f()
		}
	}()
	return s
}

// end waits for what was queued.
func (s *stream) end() {
	s.once.Do(func() { close(s.work) })
	<-s.over
}

// event is a point in a stream: done is closed when it was reached.
type event struct{ done chan struct{} }

// StreamCreate makes one.
func (p *Process) StreamCreate(c cuda.ContextHandle) (cuda.StreamHandle, error) {
	if err := p.enter(c); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	h := cuda.StreamHandle(p.name())
	p.streams[h] = newStream()
	return h, nil
}

// StreamDestroy ends it.
func (p *Process) StreamDestroy(c cuda.ContextHandle, h cuda.StreamHandle) error {
	p.mu.Lock()
	s := p.streams[h]
	delete(p.streams, h)
	err := p.lost
	p.mu.Unlock()
	if s == nil {
		return cuda.InvalidHandle
	}
	s.end()
	return err
}

// queue hands work to a stream. The stream cannot be destroyed meanwhile: who
// destroys one that is in use has a bug, and meets a send on a closed channel.
func (p *Process) queue(c cuda.ContextHandle, h cuda.StreamHandle, work func()) error {
	if err := p.enter(c); err != nil {
		return err
	}
	s := p.streams[h]
	p.mu.Unlock()
	if s == nil {
		return cuda.InvalidHandle
	}
	s.work <- work
	return nil
}

// StreamSynchronize waits for a stream.
func (p *Process) StreamSynchronize(c cuda.ContextHandle, h cuda.StreamHandle) error {
	done := make(chan struct{})
	if err := p.queue(c, h, func() { close(done) }); err != nil {
		return err
	}
	<-done
	return p.good()
}

// good is nil, or why the context is lost.
func (p *Process) good() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// StreamWait makes a stream wait.
func (p *Process) StreamWait(c cuda.ContextHandle, h cuda.StreamHandle, e cuda.EventHandle) error {
	done, err := p.recorded(c, e)
	if err != nil {
		return err
	}
	return p.queue(c, h, func() { <-done })
}

// recorded is closed when what an event recorded last is done.
func (p *Process) recorded(c cuda.ContextHandle, h cuda.EventHandle) (<-chan struct{}, error) {
	if err := p.enter(c); err != nil {
		return nil, err
	}
	defer p.mu.Unlock()
	e := p.events[h]
	if e == nil {
		return nil, cuda.InvalidHandle
	}
	return e.done, nil
}

// EventCreate makes one, which is as if it had been reached.
func (p *Process) EventCreate(c cuda.ContextHandle) (cuda.EventHandle, error) {
	if err := p.enter(c); err != nil {
		return 0, err
	}
	defer p.mu.Unlock()
	h := cuda.EventHandle(p.name())
	e := &event{done: make(chan struct{})}
	close(e.done)
	p.events[h] = e
	return h, nil
}

// EventDestroy destroys it.
func (p *Process) EventDestroy(c cuda.ContextHandle, h cuda.EventHandle) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.events[h] == nil {
		return cuda.InvalidHandle
	}
	delete(p.events, h)
	return p.lost
}

// EventRecord puts it into a stream.
func (p *Process) EventRecord(c cuda.ContextHandle, h cuda.EventHandle, s cuda.StreamHandle) error {
	if err := p.enter(c); err != nil {
		return err
	}
	e := p.events[h]
	if e == nil {
		p.mu.Unlock()
		return cuda.InvalidHandle
	}
	done := make(chan struct{})
	e.done = done
	p.mu.Unlock()
	return p.queue(c, s, func() { close(done) })
}

// EventQuery asks whether it was reached.
func (p *Process) EventQuery(c cuda.ContextHandle, h cuda.EventHandle) error {
	done, err := p.recorded(c, h)
	if err != nil {
		return err
	}
	select {
	case <-done:
		return p.good()
	default:
		return cuda.NotReady
	}
}

// EventSynchronize waits until it is.
func (p *Process) EventSynchronize(c cuda.ContextHandle, h cuda.EventHandle) error {
	done, err := p.recorded(c, h)
	if err != nil {
		return err
	}
	<-done
	return p.good()
}

// Copy queues a copy.
func (p *Process) Copy(c cuda.ContextHandle, s cuda.StreamHandle, to, from cuda.Pointer, bytes uint64) error {
	return p.queue(c, s, func() {
		dst, src := p.Bytes(to, bytes), p.Bytes(from, bytes)
		if dst == nil || src == nil {
			p.fail(cuda.IllegalAddress)
			return
		}
		copy(dst, src)
	})
}

// Fill queues the writing of a value.
func (p *Process) Fill(c cuda.ContextHandle, s cuda.StreamHandle, to cuda.Pointer, value byte, bytes uint64) error {
	return p.queue(c, s, func() {
		dst := p.Bytes(to, bytes)
		if dst == nil {
			p.fail(cuda.IllegalAddress)
			return
		}
		for i := range dst {
			dst[i] = value
		}
	})
}

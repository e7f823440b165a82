package agent

import (
	"sync"

	"meridian/kv"
)

// Calls are questions to other agents that wait for an answer, each under a number. Only the
// agent that was asked can answer, once. Its methods may be called from several goroutines.
type Calls[A any] struct {
	late func(A)

	mu      sync.Mutex // protects what follows
	last    uint64
	waiting map[uint64]pendingCall[A]
}

type pendingCall[A any] struct {
	to     kv.Member
	answer chan A // has room for one
}

// NewCalls begins with none. Late hears of answers that nothing waits for any more, also of
// what an agent says twice; nil: nothing does.
func NewCalls[A any](late func(A)) *Calls[A] {
	if late == nil {
		late = func(A) {}
	}
	return &Calls[A]{late: late, waiting: make(map[uint64]pendingCall[A])}
}

// Begin is for a question that is about to be told; end says that nothing waits for its
// answer any more, and comes once.
func (c *Calls[A]) Begin(to kv.Member) (number uint64, answer <-chan A, end func()) {
	one := pendingCall[A]{to, make(chan A, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	number = c.last
	c.waiting[number] = one
	return number, one.answer, func() {
		c.mu.Lock()
		delete(c.waiting, number)
		c.mu.Unlock()
		select {
		case a := <-one.answer: // it came just too late
			c.late(a)
		default:
		}
	}
}

// Answered takes an answer from an agent.
func (c *Calls[A]) Answered(from kv.Member, number uint64, answer A) {
	c.mu.Lock()
	one, waits := c.waiting[number]
	if waits = waits && one.to == from; waits {
		select {
		case one.answer <- answer:
		default:
			waits = false // it said two things
		}
	}
	c.mu.Unlock()
	if !waits {
		c.late(answer)
	}
}

// Waiting is how many have not ended.
func (c *Calls[A]) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

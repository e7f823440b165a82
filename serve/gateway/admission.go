package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"meridian/internal/budget"
	"meridian/serve/openai"
)

// admission bounds how many requests are read, how many wait for their turn and
// how many run, and what memory their bodies take together. A request passes
//
//	read ──► done reading ──► enter ──► leave
//
// and holds its body's bytes until it is over.
type admission struct {
	running chan struct{}
	limit   int64         // of those that wait
	patient time.Duration // how long one waits
	waiting atomic.Int64

	readers int64 // limit of those that are read
	reading atomic.Int64

	bodies budget.Budget
}

// newAdmission takes options that are complete. As many requests may be sent to
// the gateway at a time as may be inside.
func newAdmission(o *Options) *admission {
	waiting := max(o.MaxWaiting, 0)
	return &admission{
		running: make(chan struct{}, o.MaxRunning), limit: int64(waiting), patient: o.QueueTimeout,
		readers: int64(o.MaxRunning + waiting), bodies: budget.Budget{Limit: o.MaxBodyMemory},
	}
}

// read takes a place for a request whose body is to be read and parsed, which
// doneReading gives back. Nothing is read for a request that would be turned away
// after it.
func (a *admission) read() *openai.Error {
	if len(a.running) == cap(a.running) && a.waiting.Load() >= a.limit {
		return a.full()
	}
	if a.reading.Add(1) > a.readers {
		a.reading.Add(-1)
		return openai.Overloaded(time.Second, "the gateway is full: %d requests are being sent to it", a.readers)
	}
	return nil
}

func (a *admission) doneReading() { a.reading.Add(-1) }

func (a *admission) full() *openai.Error {
	return openai.Overloaded(time.Second, "the gateway is full: %d requests run and %d wait", cap(a.running), a.limit)
}

// enter waits for a place; with an error there is none. leave gives it back.
func (a *admission) enter(ctx context.Context) *openai.Error {
	select {
	case a.running <- struct{}{}:
		return nil
	default:
	}
	if a.waiting.Add(1) > a.limit {
		a.waiting.Add(-1)
		return a.full()
	}
	defer a.waiting.Add(-1)
	timer := time.NewTimer(a.patient)
	defer timer.Stop()
	select {
	case a.running <- struct{}{}:
		return nil
	case <-timer.C:
		return openai.Overloaded(a.patient, "no place became free within %v", a.patient)
	case <-ctx.Done():
		return openai.Unavailable("the client went away")
	}
}

func (a *admission) leave() { <-a.running }

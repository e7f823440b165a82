package edge

import (
	"context"
	"sync/atomic"
	"time"

	"meridian/internal/budget"
	"meridian/serve/openai"
)

// Admission bounds how many requests are read, how many wait for their turn and
// how many run, and what memory their bodies take together. A request passes
//
//	read ──► done reading ──► enter ──► leave
//
// and holds its body's bytes until it is over.
type Admission struct {
	running chan struct{}
	limit   int64         // of those that wait
	patient time.Duration // how long one waits
	waiting atomic.Int64

	readers int64 // limit of those that are read
	reading atomic.Int64

	bodies   budget.Budget
	most     int64         // of one body
	bodyTime time.Duration // how long one may take
}

// AdmissionOptions bound who is inside.
type AdmissionOptions struct {
	Running, Waiting int
	QueueTimeout     time.Duration
	// BodyBytes bounds one body, which must be here within BodyTimeout, BodyMemory all of them.
	BodyBytes, BodyMemory int64
	BodyTimeout           time.Duration
}

// NewAdmission lets as many requests be sent to the gateway at a time as may be inside.
func NewAdmission(o AdmissionOptions) *Admission {
	waiting := max(o.Waiting, 0)
	return &Admission{
		running: make(chan struct{}, o.Running), limit: int64(waiting), patient: o.QueueTimeout,
		readers: int64(o.Running + waiting), bodies: budget.Budget{Limit: o.BodyMemory}, most: o.BodyBytes, bodyTime: o.BodyTimeout,
	}
}

// Counts is how many requests are read, wait and run.
func (a *Admission) Counts() (reading, waiting, running int) {
	return int(a.reading.Load()), int(a.waiting.Load()), len(a.running)
}

// Body is one that holds nothing yet.
func (a *Admission) Body() budget.Held { return budget.Held{Budget: &a.bodies} }

// Held is how many bytes of bodies are held.
func (a *Admission) Held() int64 { return a.bodies.Used() }

// Read takes a place for a request whose body is to be read and parsed, which
// DoneReading gives back. Nothing is read for a request that would be turned away
// after it.
func (a *Admission) Read() *openai.Error {
	if len(a.running) == cap(a.running) && a.waiting.Load() >= a.limit {
		return a.full()
	}
	if a.reading.Add(1) > a.readers {
		a.reading.Add(-1)
		return openai.Overloaded(time.Second, "the gateway is full: %d requests are being sent to it", a.readers)
	}
	return nil
}

// DoneReading gives the place of Read back.
func (a *Admission) DoneReading() { a.reading.Add(-1) }

func (a *Admission) full() *openai.Error {
	return openai.Overloaded(time.Second, "the gateway is full: %d requests run and %d wait", cap(a.running), a.limit)
}

// Enter waits for a place; with an error there is none. Leave gives it back.
func (a *Admission) Enter(ctx context.Context) *openai.Error {
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

// Leave gives the place of Enter back.
func (a *Admission) Leave() { <-a.running }

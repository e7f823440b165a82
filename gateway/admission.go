package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"meridian/openai"
)

// admission bounds how many requests run and how many wait to.
type admission struct {
	running chan struct{}
	limit   int64
	patient time.Duration // how long one waits
	waiting atomic.Int64
}

func newAdmission(running, waiting int, patient time.Duration) *admission {
	return &admission{running: make(chan struct{}, running), limit: int64(waiting), patient: patient}
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
		return openai.Overloaded(time.Second, "the gateway is full: %d requests run and %d wait", cap(a.running), a.limit)
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

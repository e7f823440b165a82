package sim

import (
	"context"
	"time"

	"meridian/move/fabric"
)

// clock is a process's time. It counts from an origin of its own, so that a time
// which crosses from one process to another means nothing there: the promise is
// that none does. The wall clock of a host can jump; no part is given it.
type clock struct {
	process *process
	origin  time.Time
}

var _ fabric.Clock = (*clock)(nil)

// origins lie so far ahead that no timer of the real clock, set by mistake,
// fires within a run; a decision by the real clock then shows as one that is
// never taken.
var origins = time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *clock) Now() time.Time { return c.origin.Add(c.process.world.now) }

// AfterFunc calls f as an event of the process.
func (c *clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	t := &timer{f: f}
	c.process.world.after(max(0, d), c.process, t.fire)
	return t.stop
}

type timer struct{ f func() }

func (t *timer) fire() {
	if f := t.f; f != nil {
		t.f = nil
		f()
	}
}

func (t *timer) stop() bool {
	pending := t.f != nil
	t.f = nil
	return pending
}

// within is a context whose deadline is by a process's clock. It never ends by
// itself: the callee judges the deadline by that clock.
type within struct {
	context.Context
	at time.Time
}

// within is a context that has d left by the process's clock.
func (p *process) within(d time.Duration) context.Context {
	return within{Context: context.Background(), at: p.clock.Now().Add(d)}
}

func (c within) Deadline() (time.Time, bool) { return c.at, true }

// atOnce is a context that has ended: what still waits under it fails, so that a
// call which promises local work only cannot wait for anything else.
var atOnce = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

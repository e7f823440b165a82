package directory

import (
	"context"
	"time"
)

// Clock is time as leases and waits see it, so that a simulator can drive it.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f when d has passed, unless it is stopped before. f does
	// not block.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// WallClock is the time of this machine.
type WallClock struct{}

func (WallClock) Now() time.Time { return time.Now() }

func (WallClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// sleep waits for d, or for wake, and reports whether ctx still lives.
func sleep(ctx context.Context, clock Clock, d time.Duration, wake <-chan struct{}) bool {
	passed := make(chan struct{})
	stop := clock.AfterFunc(d, func() { close(passed) })
	defer stop()
	select {
	case <-passed:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

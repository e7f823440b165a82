package fabric

import "time"

// Clock is what deadlines are judged by.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, d from now, on any goroutine, unless stop is
	// called before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the time of the machine.
var SystemClock Clock = systemClock{}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

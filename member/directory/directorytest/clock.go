package directorytest

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"meridian/member/directory"
)

// Clock stands still until it is told to advance.
type Clock struct {
	mu     sync.Mutex // protects what follows; not held while a timer's function runs
	now    time.Time
	timers []*timer
}

type timer struct {
	at  time.Time
	run func()
}

var _ directory.Clock = (*Clock)(nil)

// NewClock begins at a date that no test should depend on.
func NewClock() *Clock { return &Clock{now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := &timer{at: c.now.Add(d), run: f}
	c.timers = append(c.timers, mine)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		before := len(c.timers)
		c.timers = slices.DeleteFunc(c.timers, func(t *timer) bool { return t == mine })
		return len(c.timers) < before
	}
}

// Timers is how many are armed: a goroutine that is about to wait has one.
func (c *Clock) Timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// Advance moves the clock and runs every timer that is due on the way, each at
// its own time, in the order they were armed where that is the same.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		due := slices.DeleteFunc(slices.Clone(c.timers), func(t *timer) bool { return t.at.After(end) })
		if len(due) == 0 {
			break
		}
		next := slices.MinFunc(due, func(a, b *timer) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
		c.timers = slices.DeleteFunc(c.timers, func(t *timer) bool { return t == next })
		if next.at.After(c.now) {
			c.now = next.at
		}
		c.mu.Unlock()
		next.run()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

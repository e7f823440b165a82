package prefix

import (
	"context"
	"fmt"
	"time"

	"meridian/keep/store"
)

const (
	// After so many questions in a row that were waited for in vain, the master is asked
	// once in a while only.
	maxSilences = 3
	askAgain    = time.Second
	// What fails sooner than this costs no caller anything.
	costly = 20 * time.Millisecond
)

// errSilent means that the master is not asked for the moment.
var errSilent = fmt.Errorf("%w: the master has not answered lately", store.ErrUnavailable)

// masterBackoff is how long the master has said nothing. While it lasts, neither do Keeps have
// an engine's blocks for nothing nor do Finds hold a prompt up.
type masterBackoff struct {
	inVain int
	next   time.Time // when it is asked again
}

// ask says whether to ask now; who is told so is the only one for a while.
func (s *masterBackoff) ask(now time.Time) bool {
	if s.inVain < maxSilences {
		return true
	}
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(askAgain)
	return true
}

// asked notes how a question ended.
func (s *masterBackoff) asked(began, now time.Time, err error) {
	switch {
	case err == nil:
		s.inVain = 0
	case now.Sub(began) >= costly:
		if s.inVain++; s.inVain == maxSilences {
			s.next = now.Add(askAgain)
		}
	}
}

// where says who has the objects of a run. After an error, what this agent has is there.
func (c *Cache) where(ctx context.Context, run store.Run) ([]string, error) {
	began := c.options.Clock.Now()
	c.mu.Lock()
	ask := c.master.ask(began)
	c.mu.Unlock()
	if !ask {
		here, err := c.options.Store.Here(run)
		if err == nil {
			err = errSilent
		}
		return here, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.LocateTimeout)
	defer cancel()
	have, err := c.options.Store.Where(ctx, run)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.master.asked(began, c.options.Clock.Now(), err)
	return have, err
}

package cell

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"
)

// State is where a part stands in its life.
type State string

// The states of a part; the package comment draws how they follow each other.
const (
	Waiting  State = "waiting"  // its turn has not come
	Starting State = "starting" // its process runs, and has not said that it is ready
	Ready    State = "ready"
	Pausing  State = "pausing" // it died, and is started again in a moment
	Dead     State = "dead"    // it died, and stays so: it never was ready, or that is what was asked for
	Stopping State = "stopping"
	Stopped  State = "stopped"
)

// part is one process of the cell, and those that came before it.
type part struct {
	plan   Plan
	alive  bool           // a goroutine runs and watches it
	opened chan<- opening // takes how its first start went
	stop   chan struct{}  // closed when it is to end
	gone   chan struct{}  // closed when it has

	stopping sync.Once
}

// opening is how a part's first start went.
type opening struct{ err error }

func newPart(plan Plan) *part {
	return &part{plan: plan, stop: make(chan struct{}), gone: make(chan struct{})}
}

func (p *part) told() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

const (
	// longestPause is before a start of a part that dies again and again. It is
	// never given up: what killed it may have ended, and the others need it.
	longestPause = 5 * time.Second
	// steady is how long a part must have been ready for its past to be
	// forgotten.
	steady = time.Minute
	// progressPause is between two words about a part that takes long to start.
	progressPause = 10 * time.Second
)

// live starts the part's process, again whenever it dies, until it is told to
// stop. One that has never been ready is not started again: that is for the
// operator who started the cell to see.
func (c *Cell) live(p *part) {
	defer close(p.gone)
	log, err := openPartLog(c.options.StateDir, p.plan.Name, c.options.LogJSON)
	if err != nil {
		c.note(p, Event{State: Dead, Detail: err.Error()}, nil)
		p.opened <- opening{err}
		return
	}
	defer log.close()
	falls, wasReady := 0, false
	for {
		readyFor, err := c.once(p, log, func() {
			if !wasReady {
				wasReady = true
				p.opened <- opening{}
			}
		})
		if p.told() {
			c.note(p, Event{State: Stopped, Detail: ending(err)}, func(r *PartRecord) { r.Process = nil })
			if !wasReady {
				p.opened <- opening{err}
			}
			return
		}
		if readyFor >= steady {
			falls = 0
		}
		falls++
		if !wasReady || c.options.NoRestart {
			c.note(p, Event{State: Dead, Detail: ending(err)}, func(r *PartRecord) { r.Process, r.LastEnd = nil, ending(err) })
			if !wasReady {
				p.opened <- opening{err}
			}
			return
		}
		pause := pauseAfter(falls, c.options.FirstPause)
		c.note(p, Event{State: Pausing, Detail: fmt.Sprintf("%s; starts again in %v", ending(err), pause)}, func(r *PartRecord) {
			r.Process, r.LastEnd, r.Restarts = nil, ending(err), r.Restarts+1
		})
		select {
		case <-time.After(pause):
		case <-p.stop:
		}
	}
}

// pauseAfter is how long is waited after that many deaths without a steady time
// between them: twice as long each time.
func pauseAfter(falls int, first time.Duration) time.Duration {
	return min(first<<min(falls-1, 16), longestPause)
}

func ending(err error) string {
	var e *EndError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.How
	}
	return err.Error()
}

// EndError means that a part ended, or did not become ready.
type EndError struct {
	Part string
	How  string
	// Log is where it said why, and Said the end of it.
	Log  string
	Said []string
}

func (e *EndError) Error() string {
	text := fmt.Sprintf("%s %s", e.Part, e.How)
	if len(e.Said) == 0 {
		return text + ", without a word"
	}
	text += "; the end of its log:"
	for _, line := range e.Said {
		text += "\n  " + line
	}
	return text
}

// Hint says where there is more.
func (e *EndError) Hint() string { return "the whole log is " + e.Log }

// once goes through the life of one process, and calls ready when it is. It
// returns how long it was that, and how it ended; when it was told to stop, an
// error means that it had to be killed.
func (c *Cell) once(p *part, log *partLog, ready func()) (readyFor time.Duration, err error) {
	if p.told() {
		return 0, nil
	}
	child, err := c.nursery.start(c.options, p.plan, log)
	if err != nil {
		return 0, err
	}
	c.note(p, Event{State: Starting}, func(r *PartRecord) { r.Process = &child.identity })
	serves, err := c.awaitReady(p, child)
	if serves == nil {
		return 0, err
	}
	c.note(p, Event{State: Ready, Detail: serves.url}, func(r *PartRecord) { r.URL, r.Admin, r.Metrics = serves.url, serves.admin, serves.metrics })
	ready()
	since := time.Now()
	select {
	case <-child.exited:
		return time.Since(since), child.ended("ended: " + child.status())
	case <-p.stop:
		return time.Since(since), c.end(p, child)
	}
}

// service is where a process serves; its admin listener, if it has one.
type service struct{ url, admin, metrics string }

// awaitReady waits until a process serves. Where it returns nil there is nothing
// left of the process: with an error it failed, without one it was told to stop.
func (c *Cell) awaitReady(p *part, child *process) (*service, error) {
	limit := cmp.Or(p.plan.Patience, c.options.Ready)
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	healthy, done := p.plan.watchHealth()
	defer done()
	tick := time.NewTicker(progressPause)
	defer tick.Stop()
	told := ""
	for {
		select {
		case line := <-child.ready:
			return serviceIn(line), nil
		case <-healthy:
			return &service{url: p.plan.URL}, nil
		case <-tick.C:
			if said := child.journal.last(); len(said) > 0 && said[len(said)-1] != told {
				told = said[len(said)-1]
				c.tell(Event{Part: p.plan.Name, Kind: p.plan.Kind, State: Starting, Detail: told})
			}
		case <-child.exited:
			select {
			case line := <-child.ready: // it was, for a moment
				return serviceIn(line), nil
			default:
				return nil, child.ended("ended before it was ready: " + child.status())
			}
		case <-deadline.C:
			child.kill()
			return nil, child.ended(fmt.Sprintf("was not ready after %v", limit))
		case <-p.stop:
			return nil, c.end(p, child)
		}
	}
}

// end asks a process to leave, and kills it when it takes too long.
func (c *Cell) end(p *part, child *process) error {
	c.note(p, Event{State: Stopping}, nil)
	child.terminate()
	late := time.NewTimer(c.options.Drain)
	defer late.Stop()
	select {
	case <-child.exited:
		return nil
	case <-late.C:
		child.kill()
		return child.ended(fmt.Sprintf("was killed: it had not stopped after %v", c.options.Drain))
	case <-c.killed:
		child.kill()
		return child.ended("was killed")
	}
}

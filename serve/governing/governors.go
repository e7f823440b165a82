package governing

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"meridian/decide/policy"
	"meridian/serve/door/doorpb"
)

// Governors are those of all engines of a host.
type Governors struct {
	options Options
	began   time.Time

	mutex   sync.Mutex
	engines map[string]*engine
	gone    Metrics // of engines that are no more
	blocks  int64   // of all governed engines
}

// all are the engines that there are now, and what those did that are gone: each engine
// is in one of them. Who looks at them holds the mutex of one engine at a time and not
// g's, so that an engine whose step takes long keeps no other from coming.
func (g *Governors) all() ([]*engine, Metrics) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.Collect(maps.Values(g.engines)), g.gone
}

// New has governors for engines that are still to come.
func New(o Options) (*Governors, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Governors{options: o, began: o.Now(), engines: make(map[string]*engine)}, nil
}

// now is the time since a second before it all began: 0 means never.
func (g *Governors) now() policy.Instant {
	return policy.Second + max(0, policy.Instant(g.options.Now().Sub(g.began)))
}

// Govern begins a connection that carries steps of an engine: those of its scheduler,
// of which there is one, or what is measured elsewhere.
func (g *Governors) Govern(name string, about *doorpb.Steps) (*Connection, error) {
	if about == nil {
		return nil, fmt.Errorf("%w: the connection tells nothing of the engine", ErrSteps)
	}
	var m Model
	if g.options.Model != nil {
		var err error
		if m, err = g.options.Model(about.Model); err != nil {
			return nil, err
		}
	}
	c := &Connection{governors: g, measures: about.Measures, ends: about.Measures && about.Forces, terms: g.options.terms(m)}
	var governs *scheduler
	if !about.Measures {
		if err := g.reserve(about.Blocks); err != nil {
			return nil, err
		}
		defer func() {
			if c.engine == nil {
				g.release(about.Blocks)
			}
		}()
		made, options, err := g.options.governor(name, about, m)
		if err != nil {
			return nil, err
		}
		governs = newScheduler(g, made, options, about, m)
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	e := g.engines[name]
	if e == nil {
		e = &engine{name: name, heard: newHeard()}
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if governs != nil {
		if e.scheduler != nil {
			return nil, fmt.Errorf("%w: engine %q has a connection from its scheduler already; end it first", ErrSteps, name)
		}
		e.scheduler = governs
	} else {
		e.measures++
		e.ending += one(c.ends)
	}
	g.engines[name] = e
	c.engine = e
	return c, nil
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// reserve counts an engine's blocks in before there is a table of them.
func (g *Governors) reserve(blocks uint32) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.blocks+int64(blocks) > maxBlocks {
		return fmt.Errorf("%w: the engine has %d blocks, and the others that this agent governs %d, together at most %d: use larger blocks, or govern fewer engines", ErrSteps, blocks, g.blocks, maxBlocks)
	}
	g.blocks += int64(blocks)
	return nil
}

func (g *Governors) release(blocks uint32) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.blocks -= int64(blocks)
}

// engine is one engine, while any of its connections lasts.
type engine struct {
	name string

	mutex     sync.Mutex
	scheduler *scheduler // nil: it has not come, or has gone
	measures  int        // connections that only measure
	ending    int        // of them, those where thoughts are ended
	heard     *pendingEntropies
	past      Metrics // of schedulers that are gone, and what was heard for them
}

// Connection is one that carries steps. One goroutine steps and closes it.
type Connection struct {
	governors *Governors
	engine    *engine
	measures  bool
	ends      bool // it ends thoughts where it measures
	terms     *doorpb.GovernorTerms
	closed    bool
}

// Terms is what the engine goes by. It does not change.
func (c *Connection) Terms() *doorpb.GovernorTerms { return c.terms }

// Step takes what an engine did, and decides what it is to do, which is read until the
// next; where the connection only measures, nothing. The door has checked the shape of m.
// An error ends the connection.
func (c *Connection) Step(m *doorpb.Step) (*doorpb.Decision, error) {
	if c.closed {
		return nil, fmt.Errorf("%w: the connection has ended", ErrSteps)
	}
	e := c.engine
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if c.measures {
		e.measured(m)
		if c.ends {
			e.forcedElsewhere(m)
		}
		return nil, nil
	}
	return e.scheduler.step(m, e)
}

// Close forgets what the connection brought: without its scheduler, all sequences of
// the engine; without what measures, nothing but that it did.
func (c *Connection) Close() {
	if c.closed {
		return
	}
	c.closed = true
	g, e := c.governors, c.engine
	g.mutex.Lock()
	defer g.mutex.Unlock()
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if c.measures {
		e.measures--
		e.ending -= one(c.ends)
	} else {
		g.blocks -= int64(e.scheduler.blocks)
		e.past.add(e.scheduler.metrics(), false)
		e.scheduler = nil
		e.past.addHeard(e.heard)
		e.heard = newHeard()
	}
	if e.scheduler == nil && e.measures == 0 {
		g.gone.add(e.metrics(), false)
		delete(g.engines, e.name)
	}
}

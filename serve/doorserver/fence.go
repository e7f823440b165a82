package doorserver

import (
	"sync"
	"time"

	"meridian/serve/door"
)

// lost fences the engine of a connection that has ended or must. A client has
// none, and merely ends.
func (s *Server) lost(c *conn, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.engine == nil {
		c.end()
		return
	}
	s.fence(c.engine, why)
}

// fence begins the end of an engine. mu is held. The first reason counts.
func (s *Server) fence(e *engine, why string) {
	if e.state == fencing {
		return
	}
	joined := e.joined
	e.state = fencing
	e.endLife()
	s.metrics.Fenced++
	s.options.Logger.Info("an engine is fenced", "engine", e.id, "incarnation", e.incarnation.String(), "reason", why)
	unused := e.found
	e.found = nil
	s.wait.Go(func() {
		for _, f := range unused {
			s.returnTickets(f.parts)
		}
		if joined && s.options.Offload != nil {
			s.options.Offload.Leave(e.id)
		}
		if joined {
			s.leave(e, leaveTimeout)
		}
		s.quiesce(e)
		if joined {
			s.leave(e, time.Minute) // what waited for a peer that did not answer
		}
		s.waitIdle(e)
		s.endConnections(e, why)
	})
}

// leaveTimeout is how long hand-offs may take to end by themselves, so that peers
// hear why, before the memory is pulled from under them.
const leaveTimeout = 2 * time.Second

func (s *Server) leave(e *engine, patience time.Duration) {
	ctx, cancel := bounded(patience)
	defer cancel()
	if err := s.options.Transceiver.Leave(ctx, e.id); err != nil {
		s.options.Logger.Warn("hand-offs of an engine that is gone have not ended yet", "engine", e.id, "error", err)
	}
}

// quiesce takes back everything that an engine has lent. When it returns nothing
// touches any of it.
func (s *Server) quiesce(e *engine) {
	s.mu.Lock()
	var loans []loan
	for _, r := range e.ranks {
		loans = append(loans, r.lent...)
		r.lent = nil
	}
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range loans {
		all.Go(func() { s.returnMemory(e, l) })
	}
	all.Wait()
}

// endConnections ends an engine's connections, now that its memory is its own again.
func (s *Server) endConnections(e *engine, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range e.conns() {
		c.sendEvent(door.Event{Kind: door.Fenced, Problem: problem(door.CodeFenced, "%s", why)})
		c.end()
	}
	delete(s.engines, e.id)
	close(e.fenced)
}

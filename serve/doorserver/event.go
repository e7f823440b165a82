package doorserver

import (
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
)

// handleEvent tells an engine's control what became of a hand-off.
func (s *Server) handleEvent(e handoff.Event) {
	if e.Kind == handoff.Stuck {
		s.options.Logger.Warn("blocks of a hand-off stay held: an agent cannot be reached", "engine", e.Engine, "transfer", e.Transfer.String(), "peer", e.Member.Name)
	}
	s.mu.Lock()
	to := s.engines[e.Engine]
	if to != nil && e.As == handoff.Destination && to.parts[e.Transfer] != nil {
		s.mu.Unlock()
		s.handlePart(to, e)
		return
	}
	defer s.mu.Unlock()
	if to == nil {
		return
	}
	event := door.Event{Transfer: e.Transfer, Accepted: e.As == handoff.Destination, Problem: problemOf(e.Problem.Err())}
	switch e.Kind {
	case handoff.Ready:
		event.Kind = door.Ready
	case handoff.Failed:
		event.Kind = door.Failed
	case handoff.Freed:
		event.Kind = door.Freed
	default:
		return // nothing that an engine can do about it
	}
	to.tell(event)
}

// handlePart hears of a hand-off that is part of one.
func (s *Server) handlePart(to *engine, e handoff.Event) {
	p := problemOf(e.Problem.Err())
	switch e.Kind {
	case handoff.Ready:
		s.partHappened(to, e.Transfer, true, nil)
	case handoff.Failed, handoff.Freed:
		if p == nil { // it is none only where all went well
			p = problem(door.CodeInternal, "a hand-off ended without its cache")
		}
		s.partHappened(to, e.Transfer, e.Kind == handoff.Freed, p)
	}
}

// tell tells control, after the answer that it waits for.
func (e *engine) tell(event door.Event) {
	switch {
	case e.answering:
		e.heldEvents = append(e.heldEvents, event)
		return
	case e.control != nil:
		e.control.sendEvent(event)
	}
	e.forget(event)
}

// forget strikes what has ended.
func (e *engine) forget(event door.Event) {
	switch {
	case event.Kind == door.Failed:
	case event.Accepted:
		delete(e.accepts, event.Transfer)
	default:
		delete(e.offers, event.Transfer)
		delete(e.keeps, event.Transfer)
	}
}

// handlePassed tells the ranks of an engine that are here.
func (s *Server) handlePassed(p handoff.NotifyRanks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.engines[p.Engine]
	if e == nil {
		return
	}
	event := door.Event{Kind: door.Freed, Transfer: p.Transfer, Accepted: p.As == handoff.Destination, Problem: problemOf(p.Problem.Err())}
	if event.Accepted && event.Problem == nil {
		event.Kind = door.Ready
	}
	e.tellRanks(event)
}

// tellRanks tells those that are here.
func (e *engine) tellRanks(event door.Event) {
	for _, r := range e.ranks {
		if r.conn != nil {
			r.conn.sendEvent(event)
		}
	}
}

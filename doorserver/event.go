package doorserver

import (
	"meridian/door"
	"meridian/transceiver/handoff"
)

// handleEvent tells an engine's control what became of a hand-off.
func (s *Server) handleEvent(e handoff.Event) {
	if e.Kind == handoff.Stuck {
		s.options.Logger.Warn("blocks of a hand-off stay held: an agent cannot be reached", "engine", e.Engine, "transfer", e.Transfer.String(), "peer", e.Member.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.engines[e.Engine]
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
		delete(e.intakes, event.Transfer)
	default:
		delete(e.offers, event.Transfer)
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
	for _, r := range e.ranks {
		if r.conn != nil {
			r.conn.sendEvent(event)
		}
	}
}

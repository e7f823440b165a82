package doorserver

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
)

// found is a run that was found for an engine. To the engine it is one hand-off,
// though each of its parts is one of the transceiver's:
//
//	remembered ──Accept──► moving ──all parts Ready──► Ready
//	    │                     └──a part Failed──► Failed; the others are cancelled
//	    └──returned, too old                        └──all parts quiet──► Freed
//
// A part is quiet when it is ready or freed: nothing of it touches the engine's
// blocks. All of it is under the server's mu.
//
// The ticket of another engine is a run of one part, which has no parts to remember: what
// happens to the part happens to the run, and its ticket is the engine's to return.
type found struct {
	id     kv.ID // of the hand-off, as the engine knows it
	tokens int
	parts  []part
	open   map[kv.ID]bool // parts that are not quiet yet; nil before Accept
	failed *door.Problem  // the first that a part had
}

type part struct {
	Segment
	id           kv.ID          // of the transceiver's hand-off
	opened       handoff.Ticket // for what the engine's own request is of; see foundRun
	refused      error          // why that is not possible
	answerWithin time.Duration  // how long its holder may take to answer; 0: as long as the hand-off may take
}

const (
	// maxSegments bounds the parts of a run.
	maxSegments = 4
	// maxFound is how many runs are remembered for an engine that has not used them.
	// The oldest go: their tickets would not be good for much longer.
	maxFound = 64
)

// newFound makes one hand-off of a run. The segments come from agents of the cell, and
// are looked at all the same.
func newFound(t *transceiver.Transceiver, r Run) (*found, error) {
	if len(r.Segments) > maxSegments {
		return nil, fmt.Errorf("a run in %d segments, at most %d", len(r.Segments), maxSegments)
	}
	f := &found{tokens: r.Tokens}
	for i, s := range r.Segments {
		ticket, err := t.OpenTicket(s.Ticket, nil)
		if err != nil {
			return nil, err
		}
		if s.Start < 0 || s.End <= s.Start || i > 0 && s.Start != r.Segments[i-1].End {
			return nil, fmt.Errorf("segment %d has tokens %d to %d", i, s.Start, s.End)
		}
		f.parts = append(f.parts, part{Segment: s, id: ticket.Transfer, answerWithin: ownerAnswersWithin})
	}
	if last := f.parts[len(f.parts)-1]; last.End != r.Tokens {
		return nil, fmt.Errorf("a run of %d tokens ends at %d", r.Tokens, last.End)
	}
	f.id = f.parts[0].id // so that ranks at other agents know it by the same
	if len(f.parts) > 1 {
		f.id = agent.NewID()
	}
	return f, nil
}

// happened hears of one part: it is quiet, or has failed, or both. It returns what the engine is
// told, and which parts are not wanted any more.
func (f *found) happened(id kv.ID, quiet bool, problem *door.Problem) (tell []door.Event, unwanted []kv.ID) {
	if problem != nil && f.failed == nil {
		f.failed = problem
		tell = append(tell, door.Event{Kind: door.Failed, Transfer: f.id, Accepted: true, Problem: problem})
		for other := range f.open {
			if other != id {
				unwanted = append(unwanted, other)
			}
		}
	}
	if quiet && f.open[id] {
		delete(f.open, id)
		if len(f.open) == 0 {
			end := door.Event{Kind: door.Ready, Transfer: f.id, Accepted: true}
			if f.failed != nil {
				end.Kind, end.Problem = door.Freed, f.failed
			}
			tell = append(tell, end)
		}
	}
	return tell, unwanted
}

// remember keeps a run for the Accept that follows, and returns one that is too old.
func (e *engine) remember(f *found) (forgotten *found) {
	if len(e.found) >= maxFound {
		forgotten = e.found[0]
		e.found = slices.Delete(e.found, 0, 1)
	}
	e.found = append(e.found, f)
	return forgotten
}

// takeFound takes the run of a ticket out; nil: there is none.
func (e *engine) takeFound(id kv.ID) *found {
	i := slices.IndexFunc(e.found, func(f *found) bool { return f.id == id })
	if i < 0 {
		return nil
	}
	f := e.found[i]
	e.found = slices.Delete(e.found, i, i+1)
	return f
}

func unknownFound(e *engine, code string) *door.Problem {
	return problem(code, "nothing that was found for engine %s waits under this ticket: it was used or given back, or is too old", e.id)
}

// returnTickets gives the tickets of parts back. The server's mu is not held.
func (s *Server) returnTickets(parts []part) {
	for _, p := range parts {
		if err := s.options.Transceiver.ReturnTicket(p.Ticket); err != nil {
			s.options.Logger.Debug("a ticket could not be given back, and ends by itself", "error", err)
		}
	}
}

// returnFound gives back what was found under a ticket.
func (c *conn) returnFound(id kv.ID) *door.Problem {
	c.server.mu.Lock()
	f := c.engine.takeFound(id)
	c.server.mu.Unlock()
	if f == nil {
		return unknownFound(c.engine, door.CodeUnknown)
	}
	c.server.returnTickets(f.parts)
	return nil
}

// ownerAnswersWithin is how long an owner may take to answer that has said moments
// ago what it has. One that is gone is a miss, not a wait for the engine's deadline.
const ownerAnswersWithin = 2 * time.Second

// foundRun takes the run of a ticket for an Accept of it, with the parts of which something is not
// present yet, and opens their tickets for what the engine's own request is of.
func (c *conn) foundRun(id kv.ID, a door.Accept, content handoff.Content) (f *found, wanted []part, p *door.Problem) {
	s, e := c.server, c.engine
	s.mu.Lock()
	f = e.takeFound(id)
	s.mu.Unlock()
	if f == nil {
		return nil, nil, unknownFound(e, "used")
	}
	useful := slices.IndexFunc(f.parts, func(p part) bool { return p.End > a.Present })
	first := f.parts[0].Start // what comes before was not found for this engine
	if len(a.Tokens) != f.tokens || useful < 0 || a.Present < first {
		s.returnTickets(f.parts)
		p := problem(door.CodeRequest, "an Accept of %d tokens, %d of them present, for a run of tokens %d to %d", len(a.Tokens), a.Present, first, f.tokens)
		p.Hint = "compute what is missing, or find again: a run begins behind what was present when it was found"
		return nil, nil, p
	}
	wanted = f.parts[useful:]
	for i := range wanted {
		content.Tokens = a.Tokens[:wanted[i].End]
		wanted[i].opened, wanted[i].refused = s.options.Transceiver.OpenTicket(wanted[i].Ticket, &content)
	}
	s.returnTickets(f.parts[:useful])
	f.open = make(map[kv.ID]bool)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range wanted {
		f.open[p.id], e.parts[p.id] = true, f
	}
	return f, wanted, nil
}

// forgetParts gives back the tickets of a run of which nothing has begun; a ticket that the
// engine showed stays its own.
func (s *Server) forgetParts(e *engine, f *found, wanted []part) {
	if len(f.parts) == 0 {
		return
	}
	s.mu.Lock()
	for _, p := range wanted {
		delete(e.parts, p.id)
	}
	s.mu.Unlock()
	s.returnTickets(wanted)
}

// partsRefused tells of the parts of a run that could not begin after others had.
func (s *Server) partsRefused(e *engine, left []part, err error) {
	s.returnTickets(left)
	for _, p := range left {
		s.partHappened(e, p.id, true, problemOf(err))
	}
}

// partHappened tells an engine what a part means to the whole, and cancels what is not
// wanted any more. The server's mu is not held.
func (s *Server) partHappened(e *engine, id kv.ID, quiet bool, p *door.Problem) {
	s.mu.Lock()
	f := e.parts[id]
	if f == nil {
		s.mu.Unlock()
		return
	}
	tell, unwanted := f.happened(id, quiet, p)
	if quiet {
		delete(e.parts, id)
	}
	var untried []part
	for _, event := range tell {
		e.tell(event)
		if len(f.parts) > 1 && event.Kind != door.Failed { // of a single one they hear as of any
			e.tellRanks(event)
		}
		if event.Kind == door.Freed { // it is not tried again; holders of cancelled parts would wait for that
			untried = f.parts
		}
	}
	s.mu.Unlock()
	s.cancelParts(unwanted)
	s.returnTickets(untried)
}

// cancelParts ends hand-offs. The server's mu is not held.
func (s *Server) cancelParts(parts []kv.ID) {
	for _, id := range parts {
		s.options.Transceiver.Cancel(id)
	}
}

// openParts are the hand-offs of an accept that are not quiet.
func (f *found) openParts() []kv.ID { return slices.Collect(maps.Keys(f.open)) }

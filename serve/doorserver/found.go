package doorserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// found is a run that was found for an engine. To the engine it is one hand-off,
// though each of its parts is one of the transceiver's:
//
//	remembered ──Accept──► moving ──all parts Ready──► Ready
//	    │                     └──a part Failed──► Failed; the others are cancelled
//	    └──declined, too old                        └──all parts quiet──► Freed
//
// A part is quiet when it is ready or freed: nothing of it touches the engine's
// blocks. All of it is under the server's mu.
type found struct {
	id     kv.ID // of the hand-off, as the engine knows it
	tokens int
	parts  []part
	open   map[kv.ID]bool // parts that are not quiet yet; nil before Accept
	failed *door.Problem  // the first that a part had
}

type part struct {
	Segment
	id kv.ID // of the transceiver's hand-off
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
		id, err := t.TransferOf(s.Ticket)
		if err != nil {
			return nil, err
		}
		if s.Start < 0 || s.End <= s.Start || i > 0 && s.Start != r.Segments[i-1].End {
			return nil, fmt.Errorf("segment %d has tokens %d to %d", i, s.Start, s.End)
		}
		f.parts = append(f.parts, part{s, id})
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

// decline gives the tickets of parts back. The server's mu is not held.
func (s *Server) decline(parts []part) {
	for _, p := range parts {
		if err := s.options.Transceiver.Decline(p.Ticket); err != nil {
			s.options.Logger.Debug("a ticket could not be given back, and ends by itself", "error", err)
		}
	}
}

// declineFound gives back what was found under a ticket.
func (c *conn) declineFound(id kv.ID) *door.Problem {
	c.server.mu.Lock()
	f := c.engine.takeFound(id)
	c.server.mu.Unlock()
	if f == nil {
		return unknownFound(c.engine, door.CodeUnknown)
	}
	c.server.decline(f.parts)
	return nil
}

// acceptFound begins the hand-offs of a run. Once one has begun the engine's blocks are
// out, so what is refused later is told by events.
func (c *conn) acceptFound(ctx context.Context, id kv.ID, a door.Accept) (*doorpb.Reply, *door.Problem) {
	s, e := c.server, c.engine
	s.mu.Lock()
	f := e.takeFound(id)
	s.mu.Unlock()
	if f == nil {
		return nil, unknownFound(e, "used")
	}
	useful := slices.IndexFunc(f.parts, func(p part) bool { return p.End > a.Present })
	first := f.parts[0].Start // what comes before was not found for this engine
	if len(a.Tokens) != f.tokens || useful < 0 || a.Present < first {
		s.decline(f.parts)
		p := problem(door.CodeRequest, "an Accept of %d tokens, %d of them present, for a run of tokens %d to %d", len(a.Tokens), a.Present, first, f.tokens)
		p.Hint = "compute what is missing, or find again: a run begins behind what was present when it was found"
		return nil, p
	}
	s.decline(f.parts[:useful])
	wanted := f.parts[useful:]
	f.open = make(map[kv.ID]bool)
	s.mu.Lock()
	for _, p := range wanted {
		f.open[p.id], e.parts[p.id] = true, f
	}
	s.mu.Unlock()
	content := e.content(a.Scope, a.Tokens)
	for i, p := range wanted {
		err := s.acceptPart(ctx, e, p, content, a)
		switch {
		case err == nil:
			s.mu.Lock()
			e.accepts[f.id] = f
			s.mu.Unlock()
			continue
		case i == 0:
			s.forgetParts(e, wanted)
			s.decline(wanted)
			return nil, problemOf(err)
		}
		s.decline(wanted[i:])
		for _, left := range wanted[i:] {
			s.partHappened(e, left.id, true, problemOf(err))
		}
		break
	}
	return &doorpb.Reply{With: &doorpb.Reply_Transfer{Transfer: f.id[:]}}, nil
}

// ownerAnswersWithin is how long an owner may take to answer that has said moments
// ago what it has. One that is gone is a miss, not a wait for the engine's deadline.
const ownerAnswersWithin = 2 * time.Second

func (s *Server) acceptPart(ctx context.Context, e *engine, p part, content handoff.Content, a door.Accept) error {
	content.Tokens = content.Tokens[:p.End]
	_, err := s.options.Transceiver.Accept(ctx, transceiver.Accept{
		Ticket: p.Ticket, Engine: e.id, Content: content, Holding: reshard.Holding{DP: a.DP, Tables: a.Tables}, Present: max(p.Start, a.Present), Push: a.Push,
		AnswerWithin: ownerAnswersWithin,
	})
	return err
}

func (s *Server) forgetParts(e *engine, parts []part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		delete(e.parts, p.id)
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
	s.decline(untried)
}

// cancelParts ends hand-offs. The server's mu is not held.
func (s *Server) cancelParts(parts []kv.ID) {
	for _, id := range parts {
		s.options.Transceiver.Cancel(id)
	}
}

// openParts are the hand-offs of an accept that are not quiet.
func (f *found) openParts() []kv.ID { return slices.Collect(maps.Keys(f.open)) }

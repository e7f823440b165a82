package doorserver

import (
	"cmp"
	"context"
	"fmt"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// mayAsk says why an engine may not offer or accept now.
func (s *Server) mayAsk(c *conn) *door.Problem {
	if c.rank != control {
		return problem(door.CodeOrder, "a rank neither offers nor accepts; control does")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := c.engine
	switch {
	case e.state == fencing:
		return problem(door.CodeFenced, "engine %s is being fenced", e.id)
	case e.state != serving:
		return problem(door.CodeOrder, "engine %s does not serve yet: %s", e.id, e.missing())
	case len(e.offers)+len(e.accepts)+len(e.keeps) >= s.options.MaxOutstanding:
		return busy(fmt.Sprintf("engine %s has %d hand-offs that have not ended, which is the limit", e.id, s.options.MaxOutstanding))
	}
	return nil
}

// missing says what an engine waits for.
func (e *engine) missing() string {
	if e.side == nil {
		return "it has not published"
	}
	for index := range e.size {
		if r := e.ranks[index]; r == nil || !r.complete {
			return fmt.Sprintf("rank %d of %d has not lent its memory", index, e.size)
		}
	}
	return "nothing"
}

// content is what a request is of: its own scope goes before the engine's.
func (e *engine) content(own kv.Scope, tokens []uint32) handoff.Content {
	return handoff.Content{Tokens: tokens, Scope: kv.Scope{
		Model: cmp.Or(own.Model, e.scope.Model), Revision: cmp.Or(own.Revision, e.scope.Revision), Adapter: cmp.Or(own.Adapter, e.scope.Adapter),
		Media: cmp.Or(own.Media, e.scope.Media), Salt: cmp.Or(own.Salt, e.scope.Salt),
	}}
}

func (c *conn) offer(m *doorpb.Offer) (*doorpb.Reply, *door.Problem) {
	s, e := c.server, c.engine
	if p := s.mayAsk(c); p != nil {
		return nil, p
	}
	o, err := door.ParseOffer(m)
	if err != nil {
		return nil, problemOf(err)
	}
	if p := c.checkLeg(o.Leg, trust.Leg{Kind: trust.LegPrefill, ID: o.Transfer, Engine: e.id}, nil); p != nil {
		return nil, p
	}
	out, err := s.options.Transceiver.Offer(transceiver.Offer{
		Transfer: o.Transfer, Engine: e.id, Content: e.content(o.Scope, o.Tokens),
		Holding: reshard.Holding{DP: o.DP, Tables: o.Tables}, Layers: o.Layers, WholeTokens: o.Whole, Keep: o.Keep,
	})
	if err != nil {
		return nil, problemOf(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.offers[o.Transfer] == nil { // else it is repeated, and ranks may have told of it
		e.offers[o.Transfer] = &offered{OfferHandle: out, layers: len(e.side.Geometry.Layers), tokens: len(o.Tokens), computed: make(map[int]handoff.Computed)}
	}
	if len(o.Leg) > 0 {
		s.spent.add(legUse{e.id, o.Transfer})
	}
	return &doorpb.Reply{With: &doorpb.Reply_Ticket{Ticket: out.Ticket}}, nil
}

// accept begins the hand-offs of a run. Once one has begun the engine's blocks are out, so
// what is refused later is told by events.
func (c *conn) accept(m *doorpb.Accept) (*doorpb.Reply, *door.Problem) {
	s, e := c.server, c.engine
	if p := s.mayAsk(c); p != nil {
		return nil, p
	}
	a := door.ParseAccept(m)
	if a.Present > len(a.Tokens) {
		return nil, problem(door.CodeRequest, "%d tokens are present, the request has %d", a.Present, len(a.Tokens))
	}
	run, wanted, p := c.runOf(a)
	if p != nil {
		return nil, p
	}
	ctx := context.Background()
	if a.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.Deadline) // the transceiver reads the deadline, and goes by it
		defer cancel()
	}
	for i, part := range wanted {
		err := part.refused
		if err == nil {
			_, err = s.options.Transceiver.Accept(ctx, transceiver.Accept{
				Ticket: part.opened, Engine: e.id, Holding: reshard.Holding{DP: a.DP, Tables: a.Tables},
				Tokens: kv.TokenRange{Start: max(part.Start, a.Present), End: part.End}, Push: a.Push, AnswerWithin: part.answerWithin,
			})
		}
		if err != nil && i == 0 {
			s.forgetParts(e, run, wanted)
			return nil, problemOf(err)
		}
		if err != nil {
			s.partsRefused(e, wanted[i:], err)
			break
		}
		s.mu.Lock()
		e.accepts[run.id] = run
		s.mu.Unlock()
	}
	return &doorpb.Reply{With: &doorpb.Reply_Transfer{Transfer: run.id[:]}}, nil
}

// runOf is the run that an engine accepts, and which parts of it it wants: of one that was found
// for it, or the one part that the ticket of another engine is.
func (c *conn) runOf(a door.Accept) (run *found, wanted []part, p *door.Problem) {
	s, e := c.server, c.engine
	content := e.content(a.Scope, a.Tokens)
	if id, is := door.ParseFoundTicket(a.Ticket); is { // which this agent made, so that no gateway has to answer for it
		return c.foundRun(id, a, content)
	}
	ticket, err := s.options.Transceiver.OpenTicket(a.Ticket, &content)
	if p := c.checkLeg(a.Leg, trust.Leg{Kind: trust.LegDecode, ID: ticket.Transfer, Engine: e.id}, err); p != nil {
		return nil, nil, p
	}
	run = &found{id: ticket.Transfer, tokens: len(a.Tokens), open: map[kv.ID]bool{ticket.Transfer: true}}
	return run, []part{{Segment: Segment{End: len(a.Tokens)}, id: ticket.Transfer, opened: ticket}}, nil
}

func (c *conn) cancel(m *doorpb.Cancel) *door.Problem {
	if c.rank != control {
		return problem(door.CodeOrder, "a rank cancels nothing; control does")
	}
	t := c.server.options.Transceiver
	switch what := m.GetWhat().(type) {
	case *doorpb.Cancel_Offered:
		id, p := c.known(what.Offered, false)
		switch {
		case p != nil:
			return p
		case c.keeps(id):
			c.server.options.Offload.CancelKeep(id)
		default:
			t.Withdraw(id)
		}
		return nil
	case *doorpb.Cancel_Accepted:
		id, p := c.known(what.Accepted, true)
		if p == nil {
			c.server.cancelParts(c.acceptParts(id))
		}
		return p
	case *doorpb.Cancel_UnusedTicket:
		if id, is := door.ParseFoundTicket(what.UnusedTicket); is {
			return c.returnFound(id)
		}
		return problemOf(t.ReturnTicket(what.UnusedTicket))
	}
	return choice(m.ProtoReflect().GetUnknown(), "Cancel does not say what")
}

// known finds a hand-off of this engine: it may not end another's.
func (c *conn) known(transfer []byte, accepted bool) (kv.ID, *door.Problem) {
	id, err := door.ParseTransfer(transfer)
	if err != nil {
		return id, problemOf(err)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	_, taken := c.engine.accepts[id]
	if accepted && taken || !accepted && (c.engine.offers[id] != nil || c.engine.keeps[id]) {
		return id, nil
	}
	return id, problem(door.CodeUnknown, "engine %s has no such hand-off that runs: %s", c.engine.id, id)
}

// keeps reports whether a transfer is a Keep under way.
func (c *conn) keeps(id kv.ID) bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.engine.keeps[id]
}

// acceptParts are the hand-offs that an accept of this engine is made of.
func (c *conn) acceptParts(id kv.ID) []kv.ID {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if run := c.engine.accepts[id]; run != nil {
		return run.openParts()
	}
	return nil
}

// progress tells how far an offer is: control of all ranks, a rank of itself. Of
// one that is not there it is passed over: it has ended, or control, which offers
// it, will tell at the end.
func (c *conn) progress(m *doorpb.Progress) {
	if id, p := c.known(m.GetTransfer(), false); p == nil {
		c.computed(id, int(m.GetLayers()), int(m.GetTokens()))
	}
}

func (c *conn) computed(id kv.ID, layers, tokens int) {
	step := handoff.Computed{Layers: layers, Tokens: tokens}
	c.server.mu.Lock()
	o := c.engine.offers[id]
	if o != nil && c.rank != control {
		step = c.engine.computedBy(c.rank, o, layers, tokens)
	}
	c.server.mu.Unlock()
	if o == nil {
		return
	}
	if step.Whole > 0 {
		o.Progress(o.layers, step.Whole)
	}
	if step.Layers > 0 {
		o.Progress(step.Layers, step.Tokens)
	}
}

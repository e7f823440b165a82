package doorserver

import (
	"context"
	"fmt"
	"time"

	"meridian/member/trust"
	"meridian/move/reshard"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

const (
	// maxKeeps is how many prefixes of one engine may be on their way to be kept.
	maxKeeps = 256
	// A Find takes so long at most, whatever the engine says; the agent's own bound
	// (store.find_timeout_ms) is below.
	maxFindTime = time.Second
)

// mayUsePrefixes says why an engine may neither keep nor find now.
func (s *Server) mayUsePrefixes(c *conn, tokens int) *door.Problem {
	switch {
	case s.options.Offload == nil:
		p := problem(door.CodeUnsupported, "this agent keeps no prefixes")
		p.Hint = "turn store.enabled on in its configuration"
		return p
	case tokens > door.MaxPrefixTokens:
		return problem(door.CodeSize, "%d tokens, at most %d", tokens, door.MaxPrefixTokens)
	}
	return s.mayAsk(c)
}

// tenantOf is whose request something is kept or found for, by the leg that came with it; empty:
// its engine's own. A leg is good for its engine and its request, of whichever part: what is kept
// or found is of no transfer that it could name.
func (s *Server) tenantOf(e *engine, sealed []byte, what string) (string, *door.Problem) {
	if len(sealed) == 0 {
		if !s.options.RequireCacheLeg {
			return "", nil
		}
		return "", &door.Problem{
			Code: door.CodeLeg, Message: fmt.Sprintf("no leg came with %s, and this agent requires one", what),
			Hint: "send requests through the cell's gateway, or set door.require_cache_leg = false; an engine whose software hands no legs on with what it keeps and finds is older than that",
		}
	}
	leg, err := trust.OpenLeg(sealed, s.options.LegKey)
	if err == nil {
		err = leg.Check(trust.Leg{Kind: leg.Kind, ID: leg.ID, Engine: e.id})
	}
	return leg.Tenant, problemOf(err)
}

// keep lets a prefix be kept.
func (c *conn) keep(m *doorpb.Keep) *door.Problem {
	s, e := c.server, c.engine
	if p := s.mayUsePrefixes(c, len(m.GetTokens())); p != nil {
		return p
	}
	k, err := door.ParseKeep(m)
	if err != nil {
		return problemOf(err)
	}
	named := 0
	for _, table := range k.Tables {
		named += len(table)
	}
	tenant, p := s.tenantOf(e, k.Leg, "a Keep")
	if p != nil {
		return p
	}
	if named > door.MaxKeptBlocks {
		return problem(door.CodeSize, "%d blocks in all block tables, at most %d", named, door.MaxKeptBlocks)
	}
	s.mu.Lock()
	switch {
	case e.keeps[k.Transfer] || e.offers[k.Transfer] != nil:
		s.mu.Unlock()
		return problem("contradiction", "transfer %s of engine %s is under way already", k.Transfer, e.id)
	case len(e.keeps) >= maxKeeps:
		s.mu.Unlock()
		return busy(fmt.Sprintf("engine %s has %d prefixes on their way to be kept, which is the limit", e.id, maxKeeps))
	}
	e.keeps[k.Transfer] = true // before its end can be heard of
	s.mu.Unlock()
	err = s.options.Offload.Keep(e.life, Prefix{
		Engine: e.id, Request: k.Request, Tenant: tenant, Transfer: k.Transfer, Content: e.content(k.Scope, k.Tokens), Holding: reshard.Holding{DP: k.DP, Tables: k.Tables},
	})
	if err != nil {
		s.mu.Lock()
		delete(e.keeps, k.Transfer)
		s.mu.Unlock()
	}
	return problemOf(err)
}

// takeFind admits a Find, or refuses it. A problem that it returns ends the
// connection.
func (c *conn) takeFind(f *door.Frame) *door.Problem {
	var m doorpb.Find
	if err := f.UnmarshalRequest(&m); err != nil {
		return problemOf(err)
	}
	if p := c.beginFind(&m); p != nil {
		c.refuse(f, p)
	}
	return nil
}

// beginFind looks for a prefix beside everything else, so that it holds nothing up.
func (c *conn) beginFind(m *doorpb.Find) *door.Problem {
	s, e := c.server, c.engine
	if p := s.mayUsePrefixes(c, len(m.GetTokens())); p != nil {
		return p
	}
	want := door.ParseFind(m)
	if want.Present > len(want.Tokens) {
		return problem(door.CodeRequest, "%d tokens are present, the request has %d", want.Present, len(want.Tokens))
	}
	tenant, p := s.tenantOf(e, want.Leg, "a Find")
	if p != nil {
		return p
	}
	within := min(want.Within, maxFindTime)
	if within == 0 {
		within = maxFindTime
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.state == fencing: // since it was asked
		return problem(door.CodeFenced, "engine %s is being fenced", e.id)
	case e.finds >= door.MaxFinds:
		return busy(fmt.Sprintf("%d Finds of engine %s are under way, which is the limit", e.finds, e.id))
	}
	e.finds++
	e.running++ // the fence waits for it
	s.wait.Go(func() {
		ctx, cancel := context.WithTimeout(e.life, within)
		defer cancel()
		reply := s.find(ctx, e, Wanted{Engine: e.id, Request: want.Request, Tenant: tenant, Content: e.content(want.Scope, want.Tokens), Present: want.Present, TokenTime: want.TokenTime})
		reply.Request = m.GetRequest()
		s.mu.Lock()
		defer s.mu.Unlock()
		if reply.Request != 0 {
			c.send(frame(doorpb.FrameType_FRAME_TYPE_REPLY, reply))
		}
		e.finds--
		e.endRunning()
	})
	return nil
}

// find asks for a run and remembers it for the Accept that follows.
func (s *Server) find(ctx context.Context, e *engine, w Wanted) *doorpb.Reply {
	run, err := s.options.Offload.Find(ctx, w)
	if err != nil {
		p := problemOf(err)
		s.count(p)
		return &doorpb.Reply{Problem: door.ProblemMessage(p)}
	}
	answer := &doorpb.Found{Reason: fmt.Sprintf("%.64s", run.Reason)}
	reply := &doorpb.Reply{With: &doorpb.Reply_Found{Found: answer}}
	if run.Tokens <= w.Present || len(run.Segments) == 0 {
		return reply
	}
	f, err := newFound(s.options.Transceiver, run)
	if err != nil || run.Tokens > len(w.Content.Tokens) {
		s.options.Logger.Warn("what was found for an engine cannot be", "engine", e.id, "error", err)
		for _, segment := range run.Segments[:min(len(run.Segments), maxSegments)] {
			s.returnTickets([]part{{Segment: segment}})
		}
		answer.Reason = "broken"
		return reply
	}
	s.mu.Lock()
	unused := f
	if e.state == serving {
		unused = e.remember(f)
		answer.Tokens, answer.Ticket = uint32(f.tokens), door.FoundTicket(f.id)
	}
	s.mu.Unlock()
	if unused != nil {
		s.returnTickets(unused.parts)
	}
	return reply
}

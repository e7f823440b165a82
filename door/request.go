package door

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/door/doorpb"
)

// ErrNoAnswer means that the agent has not answered in time. The connection is
// ended for it: whatever was asked is undone when the event Fenced comes.
var ErrNoAnswer = errors.New("door: the agent does not answer")

// Offer tells the agent that a request's cache may be taken, and returns the
// ticket for the decode engine. After an error the blocks are the engine's; but
// after ErrNoAnswer they are so with the event Freed. Where the agent was lost
// while it was asked, Freed may come beside the error.
func (c *Client) Offer(ctx context.Context, o Offer) (ticket []byte, err error) {
	h := handOff{transfer: o.Transfer}
	s, err := c.current(true)
	if err != nil {
		return nil, err
	}
	m := &doorpb.Offer{
		Transfer: o.Transfer[:], Scope: scopeMessage(o.Scope), Tokens: o.Tokens, Tables: tableMessages(o.Tables), Dp: uint32(o.DP),
		Layers: uint32(o.Layers), KeepMs: milliseconds(o.Keep), Leg: o.Leg,
	}
	first := c.begin(h)
	reply, err := s.ask(ctx, doorpb.FrameType_FRAME_TYPE_OFFER, func(request uint64) proto.Message { m.Request = request; return m }, nil)
	if err != nil {
		if first && !errors.Is(err, ErrNoAnswer) { // else an offer stands
			c.end(h)
		}
		return nil, fmt.Errorf("offer %x: %w", o.Transfer, err)
	}
	return reply.GetTicket(), nil
}

// Accept asks for the cache of a ticket and returns the id of the transfer, of
// which events tell. After an error the blocks are the engine's; but after
// ErrNoAnswer they are so with the event Fenced.
func (c *Client) Accept(ctx context.Context, a Accept) (transfer [16]byte, err error) {
	s, err := c.current(true)
	if err != nil {
		return transfer, err
	}
	m := &doorpb.Accept{
		Ticket: a.Ticket, Scope: scopeMessage(a.Scope), Tokens: a.Tokens, Tables: tableMessages(a.Tables), Dp: uint32(a.DP),
		PresentTokens: uint32(a.Present), Push: a.Push, DeadlineMs: milliseconds(a.Deadline), Leg: a.Leg,
	}
	begun := func(reply *doorpb.Reply) {
		id, ok := transferOf(reply.GetTransfer())
		if !ok {
			return
		}
		c.begin(handOff{id, true})
		if a.Begun != nil {
			a.Begun(id)
		}
	}
	reply, err := s.ask(ctx, doorpb.FrameType_FRAME_TYPE_ACCEPT, func(request uint64) proto.Message { m.Request = request; return m }, begun)
	if err != nil {
		return transfer, fmt.Errorf("accept: %w", err)
	}
	transfer, ok := transferOf(reply.GetTransfer())
	if !ok {
		return transfer, fmt.Errorf("%w: the agent answers Accept without a transfer", ErrFrame)
	}
	return transfer, nil
}

func transferOf(b []byte) (id [16]byte, ok bool) {
	if len(b) != len(id) {
		return id, false
	}
	return [16]byte(b), true
}

// Cancel takes back what is not wanted any more. The blocks are the engine's
// again with the event Freed, or were already. What has ended is no error.
func (c *Client) Cancel(ctx context.Context, what Cancel) error {
	s, err := c.current(false)
	if err != nil {
		return err
	}
	m := &doorpb.Cancel{}
	named := 0
	if what.Offered != ([16]byte{}) {
		m.What, named = &doorpb.Cancel_Offered{Offered: what.Offered[:]}, named+1
	}
	if what.Accepted != ([16]byte{}) {
		m.What, named = &doorpb.Cancel_Accepted{Accepted: what.Accepted[:]}, named+1
	}
	if what.Ticket != nil {
		m.What, named = &doorpb.Cancel_UnusedTicket{UnusedTicket: what.Ticket}, named+1
	}
	if named != 1 {
		return fmt.Errorf("door: Cancel names %d things, it takes exactly one", named)
	}
	_, err = s.ask(ctx, doorpb.FrameType_FRAME_TYPE_CANCEL, func(request uint64) proto.Message { m.Request = request; return m }, nil)
	var p *Problem
	if errors.As(err, &p) && p.Code == CodeUnknown {
		return nil // it has ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return nil
}

// Progress tells that the first so many layers of an offer are computed on all
// ranks. Where it cannot be told, the offer has ended or will.
func (c *Client) Progress(transfer [16]byte, layers int) {
	if s, err := c.current(true); err == nil {
		s.say(doorpb.FrameType_FRAME_TYPE_PROGRESS, &doorpb.Progress{Transfer: transfer[:], Layers: uint32(layers)})
	}
}

// Step tells what a step did. Where it cannot be told, nobody misses it.
func (c *Client) Step(step Step) {
	s, err := c.current(true)
	if err != nil {
		return
	}
	m := &doorpb.Step{
		Number: step.Number, Committed: step.Committed, ComputedLayers: step.ComputedLayers,
		Running: uint32(step.Running), Waiting: uint32(step.Waiting), FreeBlocks: uint32(step.FreeBlocks),
	}
	for i := range step.Requests {
		m.Requests = append(m.Requests, step.Requests[i][:]...)
	}
	s.say(doorpb.FrameType_FRAME_TYPE_STEP, m)
}

// milliseconds is a time as messages have it: at least one, unless there is none.
func milliseconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min(max(d.Milliseconds(), 1), math.MaxUint32))
}

package door

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"meridian/serve/door/doorpb"
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
	m := o.message()
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
	m := a.message()
	begun := func(reply *doorpb.Reply) {
		id, err := ParseTransfer(reply.GetTransfer())
		if err != nil {
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
	if transfer, err = ParseTransfer(reply.GetTransfer()); err != nil {
		return transfer, fmt.Errorf("accept: the agent's answer: %w", err)
	}
	return transfer, nil
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
// ranks, for its first tokens; 0: for all of them. Where it cannot be told, the offer
// has ended or will; an agent without FeatureChunks hears of all tokens alone.
func (c *Client) Progress(transfer [16]byte, layers, tokens int) {
	s, err := c.current(true)
	if err != nil || tokens > 0 && !slices.Contains(s.links[0].features, FeatureChunks) {
		return
	}
	s.say(doorpb.FrameType_FRAME_TYPE_PROGRESS, &doorpb.Progress{Transfer: transfer[:], Layers: uint32(layers), Tokens: uint32(tokens)})
}

package transceiver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// Accept is a decode engine's: it wants the cache of a ticket, in these blocks.
type Accept struct {
	Ticket []byte
	Engine string
	// Content is what the engine's own request is of; a ticket of anything else
	// is refused. Where Known is given, that says so instead.
	Content handoff.Content
	Known   *KnownContent
	// Holding is where the cache is to go. The blocks are not the engine's
	// until the hand-off has ended.
	Holding reshard.Holding
	// Present is how many tokens of it the engine has already.
	Present int
	// Push has the source write, instead of reading from it.
	Push bool
	// AnswerWithin is how long the other side may take to answer, where it is known
	// to have the cache already, as an object cache does that has just made the
	// ticket; 0: as long as the hand-off may take.
	AnswerWithin time.Duration
}

// AcceptHandle is a cache on its way.
type AcceptHandle struct {
	Transfer kv.ID

	transceiver *Transceiver
	engine      string
	events      func(handoff.Event) // that is told of it; nil: Options.Events
	done        chan struct{}
	err         error // before done is closed
}

// Accept asks for a cache. ctx's deadline is the hand-off's. Repeating it returns
// the one that runs.
func (t *Transceiver) Accept(ctx context.Context, a Accept) (*AcceptHandle, error) {
	ticket, _ := handoff.OpenTicket(a.Ticket, t.options.TicketKey) // the destination refuses what cannot be read
	of := knownOf(a.Known, a.Content, t.options.TicketKey.For(ticket.Home))
	accept := handoff.Accept{
		Ticket: a.Ticket, Engine: a.Engine, Holding: a.Holding, Push: a.Push, Fingerprint: of.Fingerprint,
		Tokens: kv.TokenRange{Start: a.Present, End: of.Tokens},
	}
	patience := t.options.DefaultTimeout
	if deadline, has := ctx.Deadline(); has {
		patience = deadline.Sub(t.options.Clock.Now())
	}
	var in *AcceptHandle
	err := ErrClosed
	t.step(func(now handoff.Instant) (effects []handoff.Effect) {
		if t.closed {
			return nil
		}
		accept.Deadline = now + handoff.Instant(patience/time.Microsecond)
		if a.AnswerWithin > 0 {
			accept.AnswerBy = now + handoff.Instant(a.AnswerWithin/time.Microsecond)
		}
		var id kv.ID
		if id, effects, err = t.destination.Accept(now, accept); err != nil {
			t.metrics.Refused++
			return effects
		}
		if in = t.accepts[id]; in == nil {
			t.metrics.Accepted++
			in = &AcceptHandle{Transfer: id, transceiver: t, engine: a.Engine, events: t.eventsOf(a.Engine), done: make(chan struct{})}
			t.accepts[id] = in // before anything can end it
		}
		return effects
	})
	return in, err
}

// Redeem writes the ticket of an offer that was promised to this agent's engine,
// whose own request is of the content. An agent has the key of every home's
// tickets; one that is of another content than the offer is refused by the home.
func (t *Transceiver) Redeem(transfer kv.ID, home kv.Member, own handoff.Content) []byte {
	return handoff.Redeemed(transfer, home, own, t.options.TicketKey).Seal(t.options.TicketKey)
}

// TransferOf tells which transfer a ticket is for, of a ticket that a home of this
// cell sealed.
func (t *Transceiver) TransferOf(ticket []byte) (kv.ID, error) {
	opened, err := handoff.OpenTicket(ticket, t.options.TicketKey)
	return opened.Transfer, err
}

// Decline gives a ticket back that will not be used, so that its source does not keep
// blocks for it.
func (t *Transceiver) Decline(ticket []byte) error {
	var err error
	t.step(func(now handoff.Instant) (effects []handoff.Effect) {
		effects, err = t.destination.Decline(now, ticket)
		return effects
	})
	return err
}

// Done is closed when the hand-off has ended: the cache is there, or the blocks
// are the engine's again.
func (in *AcceptHandle) Done() <-chan struct{} { return in.done }

// Wait waits for the end and returns nil when every byte is there. After any
// error of a hand-off nothing of it touches the blocks any more; when ctx ends
// first the hand-off goes on.
func (in *AcceptHandle) Wait(ctx context.Context) error {
	select {
	case <-in.done:
		return in.err
	case <-ctx.Done():
		return fmt.Errorf("transceiver: waiting for hand-off %s: %w", in.Transfer, ctx.Err())
	}
}

// Cancel ends the hand-off and waits until the blocks are the engine's again. It
// returns nil then, also when the cache was there already.
func (in *AcceptHandle) Cancel(ctx context.Context) error {
	in.transceiver.Cancel(in.Transfer)
	select {
	case <-in.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("transceiver: cancelling hand-off %s: %w", in.Transfer, ctx.Err())
	}
}

// Cancel ends a hand-off that this agent's engine accepted, or will.
func (t *Transceiver) Cancel(transfer kv.ID) {
	t.step(func(now handoff.Instant) []handoff.Effect { return t.destination.Cancel(now, transfer) })
}

// eventsOf is who is told of what begins for an engine. mu is held.
func (t *Transceiver) eventsOf(engine string) func(handoff.Event) {
	if e := t.engines[engine]; e != nil {
		return e.events
	}
	return nil
}

// listenerOf is who is told of an event, also of one whose engine has left. mu is
// held.
func (t *Transceiver) listenerOf(e handoff.Event) func(handoff.Event) {
	if out := t.offers[e.Transfer]; e.As == handoff.Source && out != nil && out.events != nil {
		return out.events
	}
	if in := t.accepts[e.Transfer]; e.As == handoff.Destination && in != nil && in.events != nil {
		return in.events
	}
	return t.options.Events
}

// onEvent ends what waits for an event, and returns how it is delivered without
// mu, which is held.
func (t *Transceiver) onEvent(e handoff.Event) (deliver func()) {
	var ended chan struct{}
	events := t.listenerOf(e)
	switch {
	case e.As == handoff.Source && e.Kind == handoff.Freed:
		if out := t.offers[e.Transfer]; out != nil {
			delete(t.offers, e.Transfer)
			out.err, out.taken, ended = e.Problem.Err(), e.Taken, out.freed
		}
		t.metrics.Freed++
		if errors.Is(e.Problem.Err(), handoff.ErrExpired) {
			t.metrics.Expired++
		}
	case e.As == handoff.Destination && (e.Kind == handoff.Ready || e.Kind == handoff.Freed):
		if in := t.accepts[e.Transfer]; in != nil {
			delete(t.accepts, e.Transfer)
			in.err, ended = e.Problem.Err(), in.done
		}
		if e.Kind == handoff.Ready {
			t.metrics.Ready++
		} else {
			t.metrics.Failed++
		}
	}
	return func() {
		if events != nil {
			events(e)
		}
		if ended != nil {
			close(ended)
		}
	}
}

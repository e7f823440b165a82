package transceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// Accept is a decode engine's: it wants the cache of a ticket, in these blocks.
type Accept struct {
	// Ticket was opened for what the engine's own request is of; see OpenTicket.
	Ticket handoff.Ticket
	Engine string
	// Holding is where the cache is to go. The blocks are not the engine's
	// until the hand-off has ended.
	Holding reshard.Holding
	// Tokens is what the engine lacks: all of the ticket's but a prefix. An object cache
	// may want fewer.
	Tokens kv.TokenRange
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

// OpenTicket reads what an engine shows to have a cache: a ticket, or a gateway's promise of
// one, whose ticket this agent writes for what the engine's own request is of. An agent has the
// key of every home's tickets; one that is of another content than the offer is refused by the
// home. A ticket of another content than own is returned with the error that says what differs;
// own is nil where no cache is to come of it.
func (t *Transceiver) OpenTicket(shown []byte, own *handoff.Content) (ticket handoff.Ticket, err error) {
	key := t.options.TicketKey
	switch promised := t.options.PromiseKey != [32]byte{} && trust.IsPromise(shown); {
	case promised:
		var p trust.Promise
		if p, err = trust.OpenPromise(shown, t.options.PromiseKey); err == nil {
			content := cmp.Or(own, &handoff.Content{})
			ticket = handoff.Redeemed(p.ID, kv.Member{Name: p.Home, Incarnation: p.Incarnation}, *content, key)
		}
	case own != nil:
		ticket, err = handoff.OpenTicketFor(shown, key, *own)
	default:
		ticket, err = handoff.OpenTicket(shown, key)
	}
	if own != nil && err != nil {
		t.count(func(m *Metrics) { m.Refused++ }) // no Accept comes of it
	}
	return ticket, err
}

// Accept asks for a cache. ctx's deadline is the hand-off's. Repeating it returns
// the one that runs.
func (t *Transceiver) Accept(ctx context.Context, a Accept) (*AcceptHandle, error) {
	accept := handoff.Accept{Ticket: a.Ticket, Engine: a.Engine, Holding: a.Holding, Tokens: a.Tokens, Push: a.Push}
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
		if effects, err = t.destination.Accept(now, accept); err != nil {
			t.metrics.Refused++
			return effects
		}
		id := a.Ticket.Transfer
		if in = t.accepts[id]; in == nil {
			t.metrics.Accepted++
			in = &AcceptHandle{Transfer: id, transceiver: t, engine: a.Engine, events: t.eventsOf(a.Engine), done: make(chan struct{})}
			t.accepts[id] = in // before anything can end it
		}
		return effects
	})
	return in, err
}

// ReturnTicket gives a ticket back, or a promise of one, that will not be used, so that its
// source does not keep blocks for it.
func (t *Transceiver) ReturnTicket(shown []byte) error {
	ticket, err := t.OpenTicket(shown, nil)
	if err == nil {
		t.step(func(now handoff.Instant) []handoff.Effect { return t.destination.ReturnTicket(now, ticket) })
	}
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

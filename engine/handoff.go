package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/engine/batch"
	"meridian/kv"
	"meridian/serve/door"
	"meridian/serve/openai"
)

// offer is a cache that another engine may fetch, or that is to be kept for all of
// them. Its blocks are held until the door says Freed, whatever became of the request.
type offer struct {
	transfer [16]byte
	hold     *batch.Hold
	kept     bool
	early    *early   // nil: it was computed when it was offered
	copying  *copying // what a governor asked for by it; nil: nothing
}

// accept is a prompt's cache on its way here.
//
//	asking ──Begun──► moving ──Ready──► over: the request goes on
//	   │                 ├────Failed, deadline──► forsaken ──Freed──► over
//	   └──refused──► over└────client gone───────────┘
//	     the request computes its prompt itself
type accept struct {
	choice *choice
	hold   *batch.Hold
	ticket []byte // given back if nothing comes of it
	// transfer is zero until the agent has taken it on.
	transfer [16]byte
	// forsaken: the request does not wait any more; only the blocks do.
	forsaken bool
	failed   bool // as the agent said: it needs no cancel
	timer    *time.Timer
}

// deadlineGrace is how much later than the agent the engine itself loses
// patience.
const deadlineGrace = time.Second

var errNoDoor = errors.New("this engine has no agent")

// requestScope is what of a request's scope the publication does not say.
func requestScope(q *request) kv.Scope { return kv.Scope{Salt: q.Salt} }

// offer keeps a computed prompt for another engine, of a request that moves also the answer so
// far, and then answers.
func (e *Engine) offer(c *choice) {
	q := c.request
	if q.early != nil {
		e.endEarly(c)
		return
	}
	o, tokens, leg := &offer{}, c.sequence.Prompt, q.Leg
	if q.Offer != nil {
		o.transfer = *q.Offer
	} else {
		// Its last token is not computed; the engine that goes on does that, for what follows it.
		tokens, leg = c.sequence.Computed(), q.Move.Leg
		o.transfer, q.offered = q.Move.Transfer, tokens
		e.counters.Moved++
	}
	o.hold = e.scheduler.Hold(&c.sequence, tokens)
	e.dropChoice(c)
	if _, twice := e.offers[o.transfer]; twice || e.door == nil {
		e.scheduler.Release(o.hold)
		q.kvReason = errNoDoor.Error()
		if twice {
			q.kvReason = fmt.Sprintf("transfer %x has been offered before", o.transfer)
		}
		e.counters.Declined++
		e.finish(q, nil)
		return
	}
	e.offers[o.transfer] = o
	message := door.Offer{
		Transfer: o.transfer, Scope: requestScope(q), Tokens: slices.Clip(c.sequence.Tokens[:tokens]), Tables: [][]uint32{slices.Clone(o.hold.Blocks())},
		Layers: e.source.model.Config().Layers, Leg: leg,
	}
	e.inBackground(func(ctx context.Context) {
		ticket, err := e.door.Offer(ctx, message)
		e.post(func() { e.offered(q, o, ticket, err) })
	})
}

// offered hears what the agent says to an offer.
func (e *Engine) offered(q *request, o *offer, ticket []byte, err error) {
	switch {
	case err == nil && q.over:
		e.withdraw(o.transfer)
	case err == nil:
		e.counters.Offered++
	default:
		e.counters.Declined++
		q.kvReason = err.Error()
		e.options.Logger.Debug("an offer was not taken; the decode engine computes the prompt", "request", q.ID, "transfer", fmt.Sprintf("%x", o.transfer), "error", err)
		if !errors.Is(err, door.ErrNoAnswer) { // else Freed comes
			e.freed(o)
		}
	}
	e.finishWith(q, ticket, nil)
}

func (e *Engine) freed(o *offer) {
	if e.offers[o.transfer] == o {
		delete(e.offers, o.transfer)
		if o.kept {
			e.keeps--
			e.keptBlocks -= len(o.hold.Blocks())
		}
		if w := o.copying; w != nil {
			w.failed = w.failed || e.doorState != "serving"
			e.copied(w)
		}
		e.scheduler.Release(o.hold)
	}
}

// Withdraw takes an offer back whose ticket no engine will use.
func (e *Engine) Withdraw(transfer [16]byte) { e.post(func() { e.withdraw(transfer) }) }

func (e *Engine) withdraw(transfer [16]byte) {
	if _, exists := e.offers[transfer]; exists {
		e.tellDoor(door.Cancel{Offered: transfer})
	}
}

// withdrawAll takes every offer back.
func (e *Engine) withdrawAll() {
	for transfer := range e.offers {
		e.withdraw(transfer)
	}
}

// giveBack tells that a ticket will not be used.
func (e *Engine) giveBack(ticket []byte) {
	if ticket != nil && e.door != nil {
		e.tellDoor(door.Cancel{Ticket: ticket})
	}
}

// tellDoor cancels something. Where that cannot be told, leases end by
// themselves.
func (e *Engine) tellDoor(what door.Cancel) {
	e.inBackground(func(ctx context.Context) { e.cancelAtDoor(ctx, what) })
}

func (e *Engine) cancelAtDoor(ctx context.Context, what door.Cancel) {
	if err := e.door.Cancel(ctx, what); err != nil {
		e.options.Logger.Debug("the agent could not be told of a cancel", "error", err)
	}
}

// promisePatience is how long a prompt may take to be computed whose cache was
// promised. A gateway promises none that takes long.
const promisePatience = 30 * time.Second

// fetch asks for the cache of an admitted request: of its prompt, or of a run that
// the cell has.
func (e *Engine) fetch(c *choice, a batch.Admission) {
	q := c.request
	patience := e.options.HandoffDeadline
	switch {
	case q.found > 0:
		patience = min(patience, foundPatience)
	case door.IsPromise(q.Ticket):
		patience += promisePatience
	}
	e.accept(c, a, accepting{ticket: q.Ticket, leg: q.Leg, patience: patience})
}

// accepting is how a cache is asked for.
type accepting struct {
	ticket, leg []byte
	patience    time.Duration
}

// accept asks for a cache that an admitted sequence waits for.
func (e *Engine) accept(c *choice, a batch.Admission, how accepting) {
	q, patience := c.request, how.patience
	in := &accept{choice: c, hold: a.Hold, ticket: how.ticket}
	q.accept, q.fetching = in, time.Now()
	if e.door == nil {
		e.scheduler.Release(in.hold)
		e.forsakeAs(in, errNoDoor.Error())
		return
	}
	in.timer = time.AfterFunc(patience+deadlineGrace, func() {
		e.post(func() { e.broke(in, fmt.Sprintf("the cache did not come within %v", patience)) })
	})
	message := door.Accept{
		Ticket: how.ticket, Scope: requestScope(q), Tokens: slices.Clip(c.sequence.Tokens[:c.sequence.Fetch]), Tables: [][]uint32{slices.Clone(in.hold.Blocks())},
		Present: a.Cached, Deadline: patience, Leg: how.leg,
		Begun: func(transfer [16]byte) { e.post(func() { e.begun(in, transfer) }) },
	}
	e.inBackground(func(ctx context.Context) {
		_, err := e.door.Accept(ctx, message)
		if err != nil {
			e.post(func() { e.refused(in, err) })
		}
	})
}

// arrived counts a cache that came from elsewhere.
func (e *Engine) arrived(c *choice) {
	q := c.request
	if q.found == 0 {
		q.kv = openai.KVHandoff
		e.counters.Ready++
		return
	}
	q.kv, c.kept = openai.KVFound, q.found
	q.cached = max(q.cached, min(q.found, c.sequence.Prompt))
	e.counters.Found++
	e.counters.FoundTokens += uint64(q.found - c.sequence.Computed())
}

// begun: the agent has taken an accept on; events of it follow.
func (e *Engine) begun(in *accept, transfer [16]byte) {
	in.transfer, in.choice.request.took = transfer, transfer
	e.accepts[transfer] = in
	if in.forsaken {
		e.tellDoor(door.Cancel{Accepted: transfer})
	}
}

// refused: nothing will touch the blocks, unless the agent did not answer.
func (e *Engine) refused(in *accept, err error) {
	if errors.Is(err, door.ErrNoAnswer) {
		e.inDoubt = append(e.inDoubt, in.hold)
	} else {
		e.scheduler.Release(in.hold)
	}
	e.forsakeAs(in, err.Error())
}

// broke ends the wait for a cache that was on its way.
func (e *Engine) broke(in *accept, reason string) {
	if !in.forsaken {
		e.counters.Broken++
	}
	e.forsakeAs(in, reason)
}

// forsakeAs lets the request compute its prompt itself, for a reason.
func (e *Engine) forsakeAs(in *accept, reason string) {
	if in.forsaken {
		return
	}
	q := in.choice.request
	e.forsake(in)
	if in.choice.swap != nil { // it is computed anew
		e.scheduler.Unfetched(&in.choice.sequence)
		e.backAgain(in.choice)
		return
	}
	if in.choice.refetch != nil {
		in.choice.refetch = nil
		e.counters.Missed++
		e.unfetched(in.choice)
		return
	}
	q.handoff = time.Since(q.fetching)
	if q.over {
		return
	}
	q.kv, q.kvReason = openai.KVLocal, reason
	e.counters.Local++
	e.options.Logger.Debug("a prompt is computed here after all", "request", q.ID, "transfer", q.transfer(), "reason", reason)
	e.unfetched(in.choice)
}

// unfetched: the blocks in which a sequence waited for a cache are not its own any more.
func (e *Engine) unfetched(c *choice) {
	e.scheduler.Unfetched(&c.sequence)
	if c.told.blocks > 0 {
		e.tellLost(c)
	}
}

// forsake stops to wait for an accept. Its blocks come back when the door says so.
func (e *Engine) forsake(in *accept) {
	if in.forsaken {
		return
	}
	in.forsaken = true
	in.choice.request.accept = nil
	if in.timer != nil {
		in.timer.Stop()
	}
	if e.accepts[in.transfer] == in && !in.failed {
		e.tellDoor(door.Cancel{Accepted: in.transfer})
	}
}

// happened hears of an event at the door.
func (e *Engine) happened(event door.Event) {
	switch event.Kind {
	case door.Serving:
		e.doorState = "serving"
		e.settleDoubts()
		e.options.Logger.Info("the agent serves this engine", "engine", e.options.ID)
	case door.Fenced:
		e.doorState = "lost"
		e.settleDoubts()
		e.options.Logger.Warn("the agent is lost; this engine serves alone until it is back", "engine", e.options.ID)
	case door.Ready, door.Failed, door.Freed:
		if !event.Accepted {
			if o := e.offers[event.Transfer]; o != nil && event.Kind == door.Freed {
				e.freed(o)
				if o.early != nil {
					e.freedEarly(o.early, event.Problem)
				}
			}
			return
		}
		if in := e.accepts[event.Transfer]; in != nil {
			e.acceptEvent(in, event)
		}
	}
}

// settleDoubts: a connection has ended since, so the agent that did not answer
// touches nothing.
func (e *Engine) settleDoubts() {
	for _, hold := range e.inDoubt {
		e.scheduler.Release(hold)
	}
	e.inDoubt = nil
}

func (e *Engine) acceptEvent(in *accept, event door.Event) {
	q := in.choice.request
	if event.Kind == door.Failed {
		reason := "the hand-off failed"
		if event.Problem != nil {
			reason = event.Problem.Error()
		}
		in.failed = true // the blocks are not free before Freed
		e.broke(in, reason)
		return
	}
	delete(e.accepts, in.transfer)
	if event.Kind == door.Ready && !in.forsaken {
		in.timer.Stop()
		in.forsaken = true
		q.accept = nil
		switch {
		case in.choice.swap != nil:
			e.scheduler.Fetched(&in.choice.sequence)
			e.backAgain(in.choice)
		case in.choice.refetch != nil:
			in.choice.refetch = nil
			e.counters.Regained++
			e.scheduler.Fetched(&in.choice.sequence)
		default:
			q.handoff = time.Since(q.fetching)
			e.arrived(in.choice)
			e.scheduler.Fetched(&in.choice.sequence)
		}
	} else {
		e.forsakeAs(in, "the agent gave the blocks back")
		e.giveBack(in.ticket) // it is not tried again
	}
	e.scheduler.Release(in.hold)
}

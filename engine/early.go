package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/engine/batch"
	"meridian/serve/door"
)

// early is an offer that is made when its prompt begins to be computed, so that
// every chunk and layer of it can move while the next is.
//
//	asked ──ticket──► told of ──prompt computed──► whole: the request ends with the ticket
//	  │                 ├── preempted, cancelled ──► withdrawn
//	  └──declined───────┴── Freed before the end ──► over; the end offers anew, or says why not
type early struct {
	*offer
	ticket []byte      // nil until the agent has answered
	refuse bool        // the agent's answer was no
	ended  bool        // the request waits for that answer alone
	stale  *time.Timer // withdraws it when no decode engine has taken it for long enough
}

// computingPrompt is a prompt that a step computes and that is offered.
type computingPrompt struct {
	transfer [16]byte
	tokens   int // that it has after the step; 0: all of the prompt
}

const (
	// earlyPatience is how long a prompt may take to be computed while it is offered.
	earlyPatience = 10 * time.Minute
	// defaultKeep is what agents have, too.
	defaultKeep = 30 * time.Second
	// tellsInStep is how often in a step it is told how many layers are computed.
	tellsInStep = 8
)

// offerEarly offers a prompt of which so many tokens are computed. A prompt that has to
// be computed once more, in other blocks, is not offered early again.
func (e *Engine) offerEarly(c *choice, computed int) {
	q := c.request
	if q.Offer == nil || q.triedEarly || e.door == nil || !e.door.Serving() || e.offers[*q.Offer] != nil {
		return
	}
	// Its blocks would not be free when it has to go for another.
	if s := e.scheduler.Stats(); s.Free+s.Cached < s.Total/4 {
		return
	}
	q.triedEarly = true
	y := &early{offer: &offer{transfer: *q.Offer, hold: e.scheduler.HoldAhead(&c.sequence, c.sequence.Prompt)}}
	y.offer.early, q.early = y, y
	e.offers[y.transfer] = y.offer
	message := door.Offer{
		Transfer: y.transfer, Scope: requestScope(q), Tokens: slices.Clip(c.sequence.Tokens[:c.sequence.Prompt]), Tables: [][]uint32{slices.Clone(y.hold.Blocks())},
		Whole: min(computed, c.sequence.Prompt), Keep: earlyPatience + defaultKeep, Leg: q.Leg,
	}
	e.inBackground(func(ctx context.Context) {
		ticket, err := e.door.Offer(ctx, message)
		e.post(func() { e.offeredEarly(c, y, ticket, err) })
	})
}

// offeredEarly hears what the agent says to an early offer.
func (e *Engine) offeredEarly(c *choice, y *early, ticket []byte, err error) {
	q := c.request
	switch {
	case err != nil:
		y.refuse = true
		e.counters.Declined++
		q.kvReason = err.Error()
		e.options.Logger.Debug("an offer was not taken; the decode engine computes the prompt", "request", q.ID, "transfer", fmt.Sprintf("%x", y.transfer), "error", err)
		if !errors.Is(err, door.ErrNoAnswer) { // else Freed comes
			e.freed(y.offer)
		}
		if y.ended {
			e.finish(q, nil)
		}
		return
	case q.over || q.early != y:
		e.withdraw(y.transfer)
		return
	}
	e.counters.Offered++
	y.ticket = ticket
	if y.ended {
		e.endWithTicket(q, y)
	} else if computed := c.sequence.Computed(); computed > 0 {
		e.tellComputed(y.transfer, e.source.model.Config().Layers, tokensOf(computed, c.sequence.Prompt))
	}
}

// tokensOf is how many tokens of a prompt are computed, as the door has it.
func tokensOf(computed, prompt int) int {
	if computed >= prompt {
		return 0
	}
	return computed
}

// endEarly ends a request whose prompt is computed and was offered early.
func (e *Engine) endEarly(c *choice) {
	q, y := c.request, c.request.early
	e.dropChoice(c)
	switch y.ended = true; {
	case y.ticket != nil:
		e.endWithTicket(q, y)
	case y.refuse:
		e.finish(q, nil)
	}
}

func (e *Engine) endWithTicket(q *request, y *early) {
	e.tellComputed(y.transfer, e.source.model.Config().Layers, 0)
	if e.offers[y.transfer] == y.offer { // else it was taken before
		y.stale = time.AfterFunc(defaultKeep, func() { e.post(func() { e.withdraw(y.transfer) }) })
	}
	q.early = nil
	e.finishWith(q, y.ticket, nil)
}

// dropEarly takes back what was offered of a prompt that will not be computed in the
// blocks that the offer names.
func (e *Engine) dropEarly(q *request) {
	if y := q.early; y != nil {
		q.early = nil
		if y.ticket != nil { // else the answer finds it dropped
			e.withdraw(y.transfer)
		}
	}
}

// freedEarly: the agent has let go of an early offer: it was taken, or it is over.
func (e *Engine) freedEarly(y *early, problem *door.Problem) {
	if y.stale != nil {
		y.stale.Stop()
	}
	for q := range e.requests {
		if q.early == y && problem != nil && !y.ended && !y.refuse {
			q.early = nil // the end tries again, or hears why not
		}
	}
}

// grow notes which prompts of a step are offered.
func (e *Engine) grow(work []batch.Work) {
	e.growing = e.growing[:0]
	for _, w := range work {
		c, is := w.Sequence.Owner.(*choice)
		if !is || c.request.early == nil || w.Start >= w.Sequence.Prompt {
			continue
		}
		y := c.request.early
		if held := y.hold.Blocks(); !y.refuse && !slices.Equal(held, w.Sequence.Blocks()[:len(held)]) {
			e.dropEarly(c.request) // it lost its blocks since, and goes on in others
		} else if y.ticket != nil {
			e.growing = append(e.growing, computingPrompt{y.transfer, tokensOf(w.Start+w.Count, w.Sequence.Prompt)})
		}
	}
}

// layerDone is the runner's: the first layers of all that the step computes are in
// memory.
func (e *Engine) layerDone(layers int) {
	all := e.source.model.Config().Layers
	every := (all + tellsInStep - 1) / tellsInStep
	if layers != all && layers%every != 0 {
		return
	}
	for _, g := range e.growing {
		e.tellComputed(g.transfer, layers, g.tokens)
	}
}

// progressUpdates is what the agent has not been told yet of offers that are being computed: of
// each the last alone, so that an agent that hangs does not hold up the step loop.
type progressUpdates struct {
	mu      sync.Mutex // protects the rest
	waiting map[[16]byte]progress
	telling bool
}

type progress struct{ layers, tokens int }

// tellComputed tells the agent, beside the step loop.
func (e *Engine) tellComputed(transfer [16]byte, layers, tokens int) {
	e.news.mu.Lock()
	defer e.news.mu.Unlock()
	if e.news.waiting == nil {
		e.news.waiting = make(map[[16]byte]progress)
	}
	e.news.waiting[transfer] = progress{layers, tokens}
	if e.news.telling {
		return
	}
	e.news.telling = true
	e.inBackground(func(context.Context) {
		for {
			transfer, p, more := e.news.take()
			if !more {
				return
			}
			e.door.Progress(transfer, p.layers, p.tokens)
		}
	})
}

func (n *progressUpdates) take() (transfer [16]byte, p progress, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for transfer, p = range n.waiting {
		delete(n.waiting, transfer)
		return transfer, p, true
	}
	n.telling = false
	return transfer, p, false
}

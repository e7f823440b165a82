package gateway

import (
	"context"
	"errors"
	"time"

	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// vLLM cannot end a leg and offer what it has. So the gateway hangs up when a token has come,
// which ends the leg, and asks the same engine to compute prompt and answer so far as a prompt:
// nearly all of that is in the engine's own cache. What it offers then, another goes on with.
//
//	            asked           a token          offer              Place
//	decode leg ───────► it goes on ───► hung up ───────► prefill leg ──────────► decode leg with the ticket
//	                        └─another end─► it stayed        └─ nothing comes ──► decode leg without

// offerTimeout is how long an engine that was left may take to offer what it has: the client
// waits for it. Computing again elsewhere takes no longer than that, as a rule. chosenOfferTimeout
// is that of a move by choice, which is to gain time: an engine that is no faster has the offer in its queue.
const (
	offerTimeout       = 5 * time.Second
	chosenOfferTimeout = 500 * time.Millisecond
)

// hangsUp ends a leg that was asked to leave and whose engine cannot end it. It is true where
// the client has all that came and another engine could go on right there.
func (r *relay) hangsUp() bool {
	x := r.x
	d, a := x.departure, &x.life.Answer
	switch {
	case d == nil || !d.HangUp.Load() || x.life.Route.Resume != lifecycle.ResumeGreedy || x.life.Route.Thinks || r.complete():
		return false
	case len(a.SoFar) == 0 || !a.Beyond.IsEmpty() || !r.again.IsEmpty():
		return false // what the engine has computed would be computed twice
	}
	x.left = &leftLeg{}
	return true
}

// offer has the engine that was left offer prompt and answer so far. Where nothing comes of it,
// the next engine computes.
func (x *exchange) offer(key string) lifecycle.Step {
	e := x.g.roster.Get(key)
	if e == nil || !e.Offers() {
		return x.life.Route.Offered(false, nil)
	}
	patience := offerTimeout
	if !x.life.Passage.Why.Leaves() {
		patience = chosenOfferTimeout
	}
	ctx, cancel := context.WithTimeout(x.ctx, min(patience, x.g.options.PrefillTimeout))
	defer cancel()
	run := &prefillRun{engine: e, transfer: upstream.NewTransfer(), traced: x.trace.Leg(), path: openai.PathCompletions, began: time.Now()}
	body := x.legs.Offer(upstream.DecodeLeg{Transfer: run.transfer, Traced: run.traced, Prompt: x.life.Answer.Prompt, Sofar: x.life.Answer.SoFar}, e.About.Load())
	run.params, run.trouble = x.prefillLeg(ctx, run, body)
	record := ledger.Leg{Kind: ledger.PrefillLeg, Engine: e.Name(), Transfer: run.transfer.String(), Span: upstream.SpanOf(run.traced)}
	run.trouble.GiveUp("it took too long to offer what it has")
	x.note(record, run.began, time.Since(run.began), run.trouble)
	if run.trouble == nil {
		e.Served.Add(1)
	}
	x.life.Ticket.Hold(run.transfer, run.params)
	x.life.Passage.Offered = run.params != nil
	x.life.Passage.Queued = run.params == nil && errors.Is(ctx.Err(), context.DeadlineExceeded)
	return x.life.Route.Offered(run.params != nil, run.trouble)
}

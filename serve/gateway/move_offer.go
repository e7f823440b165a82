package gateway

import (
	"context"
	"errors"
	"time"

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

// hangsUp ends a leg that was asked to leave and whose engine cannot end it, where it can.
func (r *relay) hangsUp() bool {
	d := r.x.movable
	return d != nil && d.HangUp.Load() && r.x.life.HangUp()
}

// offer has the engine that was left offer prompt and answer so far. Where nothing comes of it,
// the next engine computes.
func (x *exchange) offer(key string) lifecycle.Step {
	e := x.g.roster.Get(key)
	if e == nil || !e.Offers() {
		return x.life.NoOffer()
	}
	ctx, cancel := context.WithTimeout(x.ctx, min(lasting(x.life.MayOfferFor()), x.g.options.PrefillTimeout))
	defer cancel()
	run := newPrefill(e, upstream.NewTransfer(), x.trace.Leg())
	run.path = openai.PathCompletions
	prompt, sofar := x.life.SoFar()
	run.Params, run.Trouble = x.prefillLeg(ctx, run, x.legs.Offer(upstream.DecodeLeg{Transfer: run.Transfer, Traced: run.traced, Prompt: prompt, Sofar: sofar}, e.About.Load()))
	run.Took = instant(time.Now()) - run.Began
	run.Late = errors.Is(ctx.Err(), context.DeadlineExceeded)
	return x.life.OfferEnded(x.ended(run))
}

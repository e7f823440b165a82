package gateway

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/internal/budget"
	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/moves"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/gateway/warm"
	"meridian/serve/openai"
)

// exchange is one request on its way through the gateway: the shell around its life.
type exchange struct {
	g    *Gateway
	ctx  context.Context
	out  *edge.Writer
	body budget.Held
	legs upstream.Legs
	life lifecycle.Life

	trace     upstream.Trace
	promised  *prefillRun // the prefill leg that runs beside decode legs, which were promised its cache
	said      *warm.Said  // the answer, for the next turn; nil where that is not of interest
	departure *moves.Leg  // the decode leg that runs, where it may leave
	left      *leftLeg    // it has left
}

// run does what its life says until it is over.
func (x *exchange) run() {
	defer func() {
		x.dropPromised(otherLegFailed)
		x.giveBack()
		x.said.Release()
		slices.SortStableFunc(x.life.Record.Legs, func(a, b ledger.Leg) int { return cmp.Compare(a.StartMs, b.StartMs) })
	}()
	x.said = x.g.warmer.Gather(x.life.Request)
	next := x.life.Route.Start()
	for {
		// Who has the whole answer may go: that is no abandoning.
		if why := x.abandoned(); why != "" && next.Do != lifecycle.DoEnd {
			x.end(ledger.Cancelled, why)
			return
		}
		switch next.Do {
		case lifecycle.DoPlace, lifecycle.DoPlaceDecode:
			next = x.place(next.Do == lifecycle.DoPlaceDecode)
		case lifecycle.DoOffer:
			next = x.offer(next.Engine)
		case lifecycle.DoMove:
			next = x.placeMove()
		case lifecycle.DoPlacePrefix:
			next = x.placePrefill(next.Engine)
		case lifecycle.DoPrefill:
			next = x.prefill(next.Engine)
		case lifecycle.DoDecode:
			next = x.decode(next)
		case lifecycle.DoFail:
			x.fail(next.Fault)
			return
		case lifecycle.DoEnd:
			x.end(ledger.Finished, "")
			x.g.warmer.Answered(warm.Ended{
				Request: x.life.Request, Said: x.said, Finished: x.life.Record.Outcome == ledger.Finished, Finish: x.life.Answer.Finish, Thought: x.life.Answer.Thought,
			})
			return
		}
	}
}

// abandoned says why the client does not wait for the answer any more, or "".
func (x *exchange) abandoned() string {
	switch {
	case x.out.Err != nil:
		return x.out.Err.Error()
	case x.g.life.Err() != nil:
		return "the gateway was stopped"
	case x.ctx.Err() != nil:
		return "the client went away"
	}
	return ""
}

// place chooses engines. Where none is there it waits, once and not for longer than
// an engine that was lost may need to come back: after that there is none to wait for.
func (x *exchange) place(decodeOnly bool) lifecycle.Step {
	w := roster.Wanted{Request: x.life.Request, Avoid: x.life.Route.Avoids, Spare: x.maySpare()}
	request := x.life.Request.Placement()
	request.Phase = x.life.Phase()
	request.Overflows = x.life.Route.Begun || x.life.Route.IsRefused()
	if decodeOnly {
		request.Whole = true
	}
	if x.life.Route.Begun {
		kind := x.life.Answer.Kind
		w.Kind = &kind
	}
	deadline := time.NewTimer(min(time.Until(x.g.roster.LastLoss().Add(x.g.options.EngineWait)), x.g.options.EngineWait))
	defer deadline.Stop()
	for {
		news := x.g.roster.News()
		candidates := x.g.roster.Candidates(w, time.Now())
		choice, err := placement.Choose(candidates, request, x.g.options.Place)
		if err == nil && x.life.Route.Begun && tookNoMore(candidates, choice.Decode) {
			if x.awaitRoom(news) {
				continue
			}
			if x.life.Route.IsRefused() {
				return x.life.Route.Placed(choice, placement.ErrNoEngine)
			}
		}
		if err == nil {
			x.held(candidates, choice)
			x.believe(candidates, choice)
			x.placed(choice, decodeOnly)
			return x.life.Route.Placed(choice, nil)
		}
		if x.life.Waited {
			return x.life.Route.Placed(choice, err)
		}
		select {
		case <-news:
		case <-deadline.C:
			x.life.Waited = true
		case <-x.ctx.Done():
			return x.life.Route.Placed(choice, err)
		}
	}
}

// shownHeld is how many engines a record names that hold something of a prompt.
const shownHeld = 8

// held records what engines hold of the prompt, as far as is known, and counts
// how the chosen one's was known.
func (x *exchange) held(candidates []placement.Engine, c placement.Choice) {
	x.life.Record.Held = nil
	known := placedByNothing
	for _, e := range candidates {
		if chosen := e.ID == c.Decode || e.ID == c.Prefill; chosen && e.Stored > e.Held {
			known = min(known, placedByStored)
		}
		if e.Held == 0 {
			continue
		}
		if len(x.life.Record.Held) < shownHeld {
			x.life.Record.Held = append(x.life.Record.Held, ledger.Held{Engine: x.g.roster.Name(e.ID), Tokens: e.Held, Told: e.Told})
		}
		switch {
		case e.ID != c.Decode && e.ID != c.Prefill:
		case e.Told:
			known = placedByTold
		default:
			known = min(known, placedByGuess)
		}
	}
	if c.PrefillWhy.Kind == placement.Stored {
		known = placedByStored
	}
	slices.SortFunc(x.life.Record.Held, func(a, b ledger.Held) int { return cmp.Or(b.Tokens-a.Tokens, cmp.Compare(a.Engine, b.Engine)) })
	x.g.count.placements[known].Add(1)
}

func (x *exchange) placed(c placement.Choice, decodeOnly bool) {
	x.life.Belief.Placed(c)
	if !decodeOnly || !x.life.Route.Begun && c.DecodeWhy.Kind == placement.DecodeIsFull {
		x.life.Record.Placement = x.g.roster.Named(c).String()
	}
}

func (x *exchange) placePrefill(decode string) lifecycle.Step {
	candidates := x.g.roster.Candidates(roster.Wanted{Request: x.life.Request, Avoid: x.life.Route.Avoids}, time.Now())
	c, ok := placement.ChoosePrefill(candidates, decode, x.life.Request.Placement(), x.g.options.Place)
	if !ok {
		return x.countFallBack(x.life.Route.PrefillGone())
	}
	x.placed(c, false)
	return x.life.Route.Placed(c, nil)
}

// countFallBack counts a prompt that was to be handed over, where the next step
// has the decode engine compute it.
func (x *exchange) countFallBack(next lifecycle.Step) lifecycle.Step {
	if next.Do == lifecycle.DoDecode && !next.Ticket {
		x.g.count.fellBack.Add(1)
	}
	return next
}

// learn remembers which tokens the prompt came to.
func (x *exchange) learn(prompt []uint32) {
	if x.legs.Learns {
		x.g.roster.LearnTokens(x.life.Request.Prefix, prompt)
	}
}

// otherLegFailed is why one of two legs that ran at the same time was given up.
const otherLegFailed = "the other leg failed"

// note puts a leg into the record.
func (x *exchange) note(l ledger.Leg, began time.Time, took time.Duration, t *lifecycle.Trouble) {
	l.StartMs, l.Ms = x.life.Clock.Since(began), lifecycle.Milliseconds(took)
	l.Status = http.StatusOK
	end := endOf(t)
	if t != nil {
		l.Status, l.Problem = t.Fault.Status, t.Fault.Recorded()
		if t.Withdrawn || x.ctx.Err() != nil {
			end, l.Status, l.Problem = legCancelled, 0, cmp.Or(x.abandoned(), t.Fault.Recorded())
		}
	}
	x.g.count.legs[slices.Index(legKinds, l.Kind)][end].Add(1)
	x.life.Record.Legs = append(x.life.Record.Legs, l)
}

// fail tells the client, in whatever form is still possible.
func (x *exchange) fail(fault *openai.Error) {
	outcome := ledger.Failed
	if fault.Status < 500 {
		outcome = ledger.Refused
	}
	if x.life.Route.Begun {
		x.g.count.unresumable.Add(1)
	}
	if !x.life.Passage.IsOver() {
		x.landed(nil)
	}
	x.out.Fault(fault, x.life.Record)
	x.life.Record.Status = fault.Status
	x.end(outcome, fault.Recorded())
}

// end completes the record.
func (x *exchange) end(outcome, problem string) {
	if outcome == ledger.Finished && x.out.Err != nil {
		outcome, problem = ledger.Cancelled, x.out.Err.Error()
	}
	if outcome == ledger.Finished && x.life.Belief.IsKept() {
		x.g.roster.NoteKept(x.life.Request.Prefix, time.Now())
	}
	x.life.End(outcome, problem, time.Now())
}

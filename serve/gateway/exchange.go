package gateway

import (
	"cmp"
	"context"
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
	w := roster.Wanted{Request: x.life.Request, Avoid: x.life.Route.Avoids, Spare: x.life.MaySpare()}
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
			x.g.count.placements[x.life.Choose(candidates, choice, x.g.roster.Name)].Add(1)
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

// placed takes in engines that were chosen.
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
	end := x.life.EndLeg(l, began, took, t, x.ctx.Err() != nil, x.abandoned())
	x.g.count.legs[slices.Index(legKinds, l.Kind)][end].Add(1)
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

// Engines that take no more. Before an answer begins, a request goes to another decode engine;
// where all are full, a prefill engine generates until one has room, as the request can leave
// it then. An answer that has begun goes back to where it was, or waits.
//
//	            429                  all full                room
//	decode ─────────► another decode ────────► prefill engine ─────► moves to decode

// roomPoll is how often those that wait look whether an engine has room.
const roomPoll = 50 * time.Millisecond

// tookNoMore tells of an engine among candidates whether it took no more lately.
func tookNoMore(candidates []placement.Engine, key string) bool {
	return slices.ContainsFunc(candidates, func(e placement.Engine) bool { return e.ID == key && e.Full })
}

// mayReturn tells whether a request may go on at the engine that it has just left.
func (x *exchange) mayReturn() bool {
	e := x.g.roster.Get(x.life.Passage.From)
	return e != nil && e.Up.Load() && !x.life.Route.Avoids(e.Key) && !x.g.roster.IsFull(e)
}

// awaitRoom waits a moment for an engine to have room or to come. It is false when the stream
// has waited as long as a request may.
func (x *exchange) awaitRoom(news <-chan struct{}) bool {
	left := x.life.AwaitRoom(time.Now(), x.g.options.QueueTimeout)
	if left == 0 {
		return false
	}
	defer x.g.moves.Stand()()
	patience := time.NewTimer(min(roomPoll, left))
	defer patience.Stop()
	select {
	case <-news:
	case <-patience.C:
	case <-x.ctx.Done():
		return false
	}
	return true
}

// looked takes in what an engine that had a prompt to compute found of it.
func (x *exchange) looked(e *roster.Engine, report *openai.Report, s roster.Spared, told bool) {
	now := time.Now()
	if told && report != nil {
		x.g.roster.Paced(e, report, s)
	}
	if told && report != nil && report.KV == openai.KVFound && report.KVTokens > 0 {
		x.g.roster.FoundKept(e, x.life.Request.Prefix, s, min(report.KVTokens, s.Of), now)
	}
	believed := x.life.Belief.Tokens()
	if believed == 0 || !e.Shares() || x.life.Request.Whole {
		return
	}
	end := storedUntold
	if told {
		x.life.Record.Stored.Spared, x.life.Record.Stored.Of = s.Tokens, s.Of
		if end = storedFound; s.IsLess(x.life.Request, believed, e) {
			end = storedLess
			x.g.roster.MissedKept(x.life.Request, s, believed, now)
		}
	}
	if x.life.Belief.Straight() {
		x.g.count.stored[end].Add(1)
	}
}

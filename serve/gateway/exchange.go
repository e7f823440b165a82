package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

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
		x.tell()
		// Who has the whole answer may go: that is no abandoning.
		if why := x.abandoned(); why != "" && next.Do != lifecycle.DoEnd {
			x.end(ledger.Cancelled, why)
			return
		}
		switch next.Do {
		case lifecycle.DoPlace, lifecycle.DoPlaceDecode, lifecycle.DoPlacePrefix, lifecycle.DoMove:
			next = x.place(next)
		case lifecycle.DoOffer:
			next = x.offer(next.Engine)
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

// place shows its life the engines that there are until it has chosen.
func (x *exchange) place(s lifecycle.Step) lifecycle.Step {
	lost := x.g.roster.LastLoss()
	for {
		news, now := x.g.roster.News(), time.Now()
		next, wait := x.life.Place(s, lifecycle.Scene{Now: now, Engines: x.g.roster.Candidates(x.life.Wants(), now), Lost: lost})
		if x.tell(); wait == nil || !x.await(wait, news) {
			return next
		}
		s = next
	}
}

// await is false where the request is over.
func (x *exchange) await(w *lifecycle.Wait, news <-chan struct{}) bool {
	if w.Room {
		defer x.g.moves.Stand()()
	}
	patience := time.NewTimer(w.Most)
	defer patience.Stop()
	select {
	case <-news:
	case <-patience.C:
	case <-x.ctx.Done():
		return false
	}
	return true
}

// tell does what its life has it do beside its next step.
func (x *exchange) tell() {
	for _, effect := range x.life.Effects() {
		switch e := effect.(type) {
		case lifecycle.Placed:
			x.g.count.placements[e.By].Add(1)
		case lifecycle.FellBack:
			x.g.count.fellBack.Add(1)
		}
	}
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

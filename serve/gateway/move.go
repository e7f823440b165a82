package gateway

import (
	"encoding/json"
	"slices"
	"time"

	"meridian/decide/placement"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/moves"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// leftLeg is what a leg says at its end that has left.
type leftLeg struct {
	params json.RawMessage // what the engine that goes on is given; nil for nothing
}

// mayLeave lets a decode leg leave, where another engine could go on exactly; end is called
// when the leg has ended.
func (x *exchange) mayLeave(e *roster.Engine, about *roster.About, d *upstream.DecodeLeg) (end func()) {
	x.departure, x.left = nil, nil
	if !x.life.MayLeave(about.Kind, about.MaxContext) {
		return func() {}
	}
	if about.Kind == openai.KindMeridian { // others know nothing of it
		d.Move = upstream.NewTransfer()
	}
	x.departure = &moves.Leg{Engine: e, Kind: about.Kind, Transfer: d.Move, Request: x.life.Request, ID: x.life.Record.ID, Avoid: slices.Clone(x.life.Route.Avoid), Began: time.Now(), Chosen: x.life.Chosen()}
	x.departure.Answered.Store(int64(x.life.Answer.Tokens))
	x.departure.Phase.Store(uint32(x.life.Phase()))
	x.g.moves.Add(x.departure)
	return func() {
		order, asked := x.departure.End()
		if asked && x.left == nil {
			x.g.count.moves[order.Why][lifecycle.MoveStayed].Add(1)
		}
	}
}

// stays: no other engine could go on with the leg that runs, so it is not asked to leave.
func (x *exchange) stays() {
	if x.departure != nil {
		x.departure.End()
	}
}

// cannotResume: another engine could not go on from here any more.
func (x *exchange) cannotResume(why string) {
	x.life.Route.CannotResume(why)
	x.stays()
}

// thoughtEnded: the first of the answer after a thought is here.
func (x *exchange) thoughtEnded() {
	if !x.life.EndThought() || x.departure == nil {
		return
	}
	x.departure.Phase.Store(uint32(placement.Answer))
	if x.g.options.MoveAtThinkEnd || !x.departure.Engine.Phases.Suits(placement.Answer) {
		x.moveByChoice(lifecycle.ByThought)
	}
}

// moveByChoice moves a request that need not, unless it moved often or lately, or is about
// to end.
func (x *exchange) moveByChoice(why lifecycle.MoveReason) {
	if x.departure != nil && x.life.MayChoose(time.Now()) {
		x.g.moves.Ask(x.departure, why)
	}
}

// leaves takes in the chunk by which an engine ends a leg that was to leave, and what follows
// it: they are no client's.
func (r *relay) leaves() bool {
	x, c := r.x, &r.chunk
	if x.left != nil {
		if report := openai.ParseReport(c.Report); report != nil { // it comes with the usage
			r.report = report
		}
		return true
	}
	if x.departure == nil || !c.Moved {
		return false
	}
	x.left = &leftLeg{}
	r.report = openai.ParseReport(c.Report)
	var told openai.KVTransfer
	params := c.Get("kv_transfer_params")
	all := len(x.life.Answer.Prompt) + len(x.life.Request.Resumed) + len(x.life.Answer.SoFar)
	// A ticket for anything else than all but the last token would be refused.
	if len(params) > 0 && params[0] == '{' && json.Unmarshal(params, &told) == nil && told.Tokens == all-1 {
		x.left.params = slices.Clone(params)
	}
	return true
}

// leftUnasked is an engine that says so of a leg that could not leave: its answer is not
// complete, and no other engine goes on with it.
func leftUnasked(e *roster.Engine) *lifecycle.Trouble {
	return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Engine: e.Key, Fault: openai.Unavailable("engine %s let a request go that was not to leave it", e.Name())}
}

// goElsewhere goes on after a leg that has left e.
func (x *exchange) goElsewhere(e *roster.Engine) lifecycle.Step {
	left, d := x.left, x.departure
	x.left, x.departure = nil, nil
	order, asked := d.Asked() // it has ended: the order does not change
	if !asked {               // it left of its own accord
		order.Why = lifecycle.ByDrain
	}
	x.life.Leave(order.Why, e.Key, e.Name(), order.To)
	if order.Placement != (placement.Reason{}) {
		x.life.Passage.Record.Placement = order.Placement.String()
	}
	x.giveBack() // of before, if no engine came for it
	x.life.Ticket.Hold(d.Transfer, left.params)
	x.life.Passage.Offered = left.params != nil
	return x.life.Route.Moved(e.Key, left.params != nil)
}

// movesTo: the next leg is at that engine.
func (x *exchange) movesTo(about *roster.About) { x.life.Passage.Record.To = about.ID }

// landed puts a move into the record, when the leg that it came to has ended.
func (x *exchange) landed(report *openai.Report) {
	p := x.life.Passage
	end, ok := p.End(report, x.abandoned() != "")
	if !ok {
		return
	}
	if report != nil && slices.Contains(kvSources, report.KV) {
		p.Record.KV = report.KV
	}
	x.life.Record.Moves = append(x.life.Record.Moves, p.Record)
	x.g.count.moves[p.Why][end].Add(1)
}

func (c *counters) movesByReason() map[string]map[string]uint64 {
	all := make(map[string]map[string]uint64)
	for i, reason := range lifecycle.MoveReasons {
		all[reason] = make(map[string]uint64)
		for j, end := range lifecycle.MoveEnds {
			all[reason][end] = c.moves[i][j].Load()
		}
	}
	return all
}

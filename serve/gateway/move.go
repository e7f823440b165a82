package gateway

import (
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// A running request moves: its engine is asked to end the leg, which it does after its next
// token, offering prompt and answer so far; another engine goes on from there with the ticket,
// or computes where there is none. The client sees one stream.
//
//	                asked               the leg's end            placeMove
//	decode leg ──────────► it goes on ────"moved"────► doMove ──────────► decode leg with the ticket
//	                            └──another end──► it stayed
//
// That an engine was asked does not bind it: a leg that ends otherwise has stayed, and a receiver
// that fails is a lost engine as any other.

const (
	// moveMargin is by how many running requests another engine must be less busy for a
	// request to leave by choice.
	moveMargin = 1
	// maxChosenMoves is how often a request leaves by choice, moveRest how long it stays
	// before it does again, and leastLeft how many tokens it must have left.
	maxChosenMoves = 2
	moveRest       = 2 * time.Second
	leastLeft      = 16
	// maxAskingToMove is how many requests are asked for at a time, and
	// askToMoveTimeout how long an engine may take to answer.
	maxAskingToMove  = 32
	askToMoveTimeout = 5 * time.Second
)

// departure is a decode leg that may leave its engine.
type departure struct {
	engine   *roster.Engine
	transfer kv.ID // that it leaves under, and that the engine knows it by
	request  *request.Request
	of       string    // the request's id
	avoid    []string  // engines that failed it
	began    time.Time // the leg
	chosen   int       // moves by choice before
	answered atomic.Int64
	kind     openai.EngineKind
	phase    atomic.Uint32 // placement.Phases
	hangUp   atomic.Bool   // the gateway is to end the leg itself, of an engine that cannot
	order    *moveOrder    // what it was asked last; protected by deciding, as ended is
	ended    bool          // the leg has ended: the gateway asks it no more
}

// departures are the legs that may leave now.
type departures struct {
	// deciding is held while one is asked to leave, so that the next sees where that goes.
	deciding sync.Mutex
	mu       sync.Mutex // protects all
	all      map[*departure]struct{}
}

func (d *departures) add(one *departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = make(map[*departure]struct{})
	}
	d.all[one] = struct{}{}
}

// end takes a leg out that has ended, and returns what it was asked, nil for nothing. The
// gateway asks it no more.
func (d *departure) end(all *departures) *moveOrder {
	all.deciding.Lock()
	defer all.deciding.Unlock()
	all.mu.Lock()
	delete(all.all, d)
	all.mu.Unlock()
	d.ended = true
	d.order.settle()
	return d.order
}

// at are the legs at an engine.
func (d *departures) at(e *roster.Engine) []*departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	var there []*departure
	for one := range d.all {
		if one.engine == e {
			there = append(there, one)
		}
	}
	return there
}

// of is the leg of a request, nil where none may leave.
func (d *departures) of(request string) *departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	for one := range d.all {
		if one.of == request {
			return one
		}
	}
	return nil
}

// drain has every request leave an engine that is about to go, as far as there is an engine to
// leave for.
func (g *Gateway) drain(e *roster.Engine) {
	for _, d := range g.departures.at(e) {
		g.move(d, lifecycle.ByDrain)
	}
}

// move asks a leg to leave where another engine is better for it, and waits for nothing. It
// returns nil where the leg stays, and what it was asked before where that was the case.
func (g *Gateway) move(d *departure, why lifecycle.MoveReason) *moveOrder {
	g.departures.deciding.Lock()
	defer g.departures.deciding.Unlock()
	if d.ended || d.order.stands(why) {
		return d.order
	}
	if !why.Leaves() && !d.takesItsCache() {
		return nil // to compute it all again is no gain
	}
	kind := d.kind
	candidates := g.roster.Candidates(roster.Wanted{Request: d.request, Avoid: func(key string) bool { return slices.Contains(d.avoid, key) }, Kind: &kind}, time.Now())
	to, reason, better := g.better(d, why, candidates)
	target := g.roster.Get(to)
	if !better || target == nil {
		return nil
	}
	return g.order(d, why, target, reason)
}

// better is where a leg goes on better.
func (g *Gateway) better(d *departure, why lifecycle.MoveReason, candidates []placement.Engine) (to string, reason placement.Reason, ok bool) {
	r := placement.Request{Turn: g.turns.Load(), Phase: placement.Phases(d.phase.Load())}
	switch {
	case why == lifecycle.ByRoom:
		return placement.MoveToRoom(candidates, d.engine.Key, r, g.options.Place)
	case why == lifecycle.ByThought && !d.engine.Phases.Suits(r.Phase):
		return placement.MoveToPhase(candidates, d.engine.Key, r, g.options.Place)
	}
	return placement.Move(candidates, d.engine.Key, r, g.options.Place, why.Leaves(), moveMargin)
}

// phase is what the request's next token is of, as far as is known.
func (x *exchange) phase() placement.Phases {
	switch {
	case !x.flow.Begun || !x.request.IsChat():
		return x.request.Phase
	case x.answer.thought > 0 && !x.thought:
		return placement.Think
	}
	return placement.Answer
}

// moving is what an exchange knows of its moves.
type moving struct {
	departure *departure // the leg that runs, where it may leave
	left      *leftLeg   // it has left
	passage   *passage   // on its way, or the last
	chosen    int        // moves by choice
	thought   bool       // its thought has ended
}

// leftLeg is what a leg says at its end that has left.
type leftLeg struct {
	params json.RawMessage // what the engine that goes on is given; nil for nothing
}

// passage is a move on its way.
type passage struct {
	why      lifecycle.MoveReason
	from, to string // keys
	record   ledger.Move
	offered  bool      // the engine that was left has offered
	queued   bool      // it did not in time: a request stands in its queue
	last     time.Time // when the last token before came
	over     bool      // what came of it is recorded
}

// mayLeave lets a decode leg leave, where another engine could go on exactly; end is called
// when the leg has ended.
func (x *exchange) mayLeave(e *roster.Engine, about *roster.About, d *upstream.DecodeLeg) (end func()) {
	x.departure, x.left = nil, nil
	mode := x.flow.Resume
	if !x.flow.Begun {
		mode, _ = x.mode(about)
	}
	if mode == lifecycle.ResumeNever || !d.Tells || !x.flow.MayMove() {
		return func() {}
	}
	if about.Kind == openai.KindMeridian { // others know nothing of it
		d.Move = upstream.NewTransfer()
	}
	x.departure = &departure{engine: e, kind: about.Kind, transfer: d.Move, request: x.request, of: x.rec.ID, avoid: slices.Clone(x.flow.Avoid), began: time.Now(), chosen: x.chosen}
	x.departure.answered.Store(int64(x.answer.tokens))
	x.departure.phase.Store(uint32(x.phase()))
	x.g.departures.add(x.departure)
	return func() {
		order := x.departure.end(&x.g.departures)
		if order != nil && x.left == nil {
			x.g.count.moves[order.why][lifecycle.MoveStayed].Add(1)
		}
	}
}

// stays: no other engine could go on with the leg that runs, so it is not asked to leave.
func (x *exchange) stays() {
	if x.departure != nil {
		x.departure.end(&x.g.departures)
	}
}

// cannotResume: another engine could not go on from here any more.
func (x *exchange) cannotResume(why string) {
	x.flow.CannotResume(why)
	x.stays()
}

// thoughtEnded: the first of the answer after a thought is here.
func (x *exchange) thoughtEnded() {
	if x.thought {
		return
	}
	x.thought = true
	if x.departure == nil {
		return
	}
	x.departure.phase.Store(uint32(placement.Answer))
	if x.g.options.MoveAtThinkEnd || !x.departure.engine.Phases.Suits(placement.Answer) {
		x.moveByChoice(lifecycle.ByThought)
	}
}

// moveByChoice moves a request that need not, unless it moved often or lately, or is about
// to end.
func (x *exchange) moveByChoice(why lifecycle.MoveReason) {
	left := leastLeft
	if limit := x.request.MaxTokens; limit != nil {
		left = *limit - x.answer.tokens
	}
	if x.departure == nil || x.chosen >= maxChosenMoves || left < leastLeft || x.passage != nil && time.Since(x.passage.last) < moveRest {
		return
	}
	x.g.move(x.departure, why)
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
	all := len(x.answer.prompt) + len(x.request.Resumed) + len(x.answer.sofar)
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
	order := d.order  // it has ended: the order does not change
	if order == nil { // it left of its own accord
		order = &moveOrder{why: lifecycle.ByDrain}
	}
	if !order.why.Leaves() {
		x.chosen++
	}
	x.passage = &passage{why: order.why, from: e.Key, to: order.to, last: x.watch.Last, record: ledger.Move{
		From: e.Name(), Why: lifecycle.MoveReasons[order.why], Tokens: x.answer.tokens, AtMs: x.watch.Since(x.watch.Last),
	}}
	if order.placement != (placement.Reason{}) {
		x.passage.record.Placement = order.placement.String()
	}
	x.giveBack() // of before, if no engine came for it
	x.transfer, x.params, x.taken = d.transfer, left.params, false
	x.passage.offered = left.params != nil
	return x.flow.Moved(e.Key, left.params != nil)
}

// placeMove chooses who goes on with a request that has left: the engine that it left for, or
// another, and the one that it left where the others are full or gone.
func (x *exchange) placeMove() lifecycle.Step {
	if p := x.passage; !p.offered && !p.queued && !p.why.Leaves() && x.answer.kind != openai.KindMeridian && x.mayReturn() {
		return x.flow.Placed(placement.Choice{Decode: p.from}, nil) // its cache is there, and nowhere else
	}
	kind := x.answer.kind
	candidates := x.g.roster.Candidates(roster.Wanted{Request: x.request, Kind: &kind, Avoid: func(key string) bool { return x.flow.Avoids(key) || key == x.passage.from }}, time.Now())
	if slices.ContainsFunc(candidates, func(e placement.Engine) bool { return e.ID == x.passage.to && !e.Doubtful && !e.Full }) {
		return x.flow.Placed(placement.Choice{Decode: x.passage.to}, nil)
	}
	// Who left by choice is no worse off where it was than with any other.
	if to, why, ok := placement.Move(candidates, x.passage.from, placement.Request{Turn: x.request.Turn, Phase: x.phase()}, x.g.options.Place, true, 0); ok && (x.passage.why.Leaves() || !x.mayReturn()) {
		x.passage.record.Placement = why.String()
		return x.flow.Placed(placement.Choice{Decode: to}, nil)
	}
	if x.mayReturn() {
		return x.flow.Placed(placement.Choice{Decode: x.passage.from}, nil)
	}
	return x.place(true)
}

// movesTo: the next leg is at that engine.
func (x *exchange) movesTo(about *roster.About) { x.passage.record.To = about.ID }

// landing: the engine that a request moved to has sent its first token.
func (x *exchange) landing(now time.Time) {
	if p := x.passage; p != nil && p.record.To != "" && p.record.GapMs == 0 {
		p.record.GapMs = lifecycle.Milliseconds(now.Sub(p.last))
	}
}

// landed puts a move into the record, when the leg that it came to has ended.
func (x *exchange) landed(report *openai.Report) {
	p := x.passage
	p.over = true
	end := lifecycle.MoveMoved
	switch {
	case p.record.GapMs == 0 && x.abandoned() != "": // its client does not wait for what comes of it
		return
	case p.record.GapMs == 0:
		end = lifecycle.MoveLost
	case p.record.To == p.record.From:
		end = lifecycle.MoveReturned
	case report != nil && report.KV == openai.KVLocal, report == nil && !p.offered: // vLLM does not tell
		end = lifecycle.MoveRecomputed
	}
	if report != nil && slices.Index(kvSources, report.KV) >= 0 {
		p.record.KV = report.KV
	}
	x.rec.Moves = append(x.rec.Moves, p.record)
	x.g.count.moves[p.why][end].Add(1)
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

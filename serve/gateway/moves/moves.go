// Package moves has running requests leave their engines.
//
// A running request moves: its engine is asked to end the leg, which it does after its next
// token, offering prompt and answer so far; another engine goes on from there with the ticket,
// or computes where there is none. The client sees one stream.
//
//	                asked               the leg's end            Place
//	decode leg ──────────► it goes on ────"moved"────► DoMove ──────────► decode leg with the ticket
//	                            └──another end──► it stayed
//
// That an engine was asked does not bind it: a leg that ends otherwise has stayed, and a receiver
// that fails is a lost engine as any other.
package moves

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

const (
	// moveMargin is by how many running requests another engine must be less busy for a
	// request to leave by choice.
	moveMargin = 1
	// moveRest is after how long a leg is asked again whose engine did not take it.
	moveRest = 2 * time.Second
	// MaxAsking is how many requests are asked for at a time, and
	// askTimeout how long an engine may take to answer.
	MaxAsking  = 32
	askTimeout = 5 * time.Second
)

// Leg is a decode leg that may leave its engine.
type Leg struct {
	Engine   *roster.Engine
	Transfer kv.ID // that it leaves under, and that the engine knows it by
	Request  *request.Request
	ID       string    // the request's id
	Avoid    []string  // engines that failed it
	Began    time.Time // the leg
	Chosen   int       // moves by choice before
	Answered atomic.Int64
	Kind     openai.EngineKind
	Phase    atomic.Uint32 // placement.Phases
	HangUp   atomic.Bool   // the gateway is to end the leg itself, of an engine that cannot
	moves    *Moves        // among which it is
	order    *moveOrder    // what it was asked last; protected by deciding, as ended is
	ended    bool          // the leg has ended: the gateway asks it no more
}

// Moves are the legs that may leave now.
type Moves struct {
	options Options
	// asking has a place for each request that an engine is being asked to let go.
	asking   chan struct{}
	active   sync.WaitGroup
	standing atomic.Int64 // streams that have begun and wait for an engine that has room
	// deciding is held while one is asked to leave, so that the next sees where that goes.
	deciding sync.Mutex
	mu       sync.Mutex // protects all
	all      map[*Leg]struct{}
}

// Options of moves.
type Options struct {
	Place    placement.Options
	Roster   *roster.Roster
	Upstream *upstream.Client
	// Balance: requests leave engines that have more to do than others.
	Balance bool
	// Turns is how many requests have come.
	Turns func() uint64
	// Life is until when engines are asked, and requests rearranged.
	Life   context.Context
	Logger *slog.Logger
}

// New has no leg leave yet.
func New(o Options) *Moves {
	return &Moves{options: o, asking: make(chan struct{}, MaxAsking), all: make(map[*Leg]struct{})}
}

// Wait waits for those that are being asked, when nothing can have another asked.
func (m *Moves) Wait() { m.active.Wait() }

// Stand counts a stream that waits for an engine that has room, until the end that it returns is
// called.
func (m *Moves) Stand() (end func()) {
	m.standing.Add(1)
	return func() { m.standing.Add(-1) }
}

// StandStill is how many streams wait for an engine that has room.
func (m *Moves) StandStill() int { return int(m.standing.Load()) }

// Running are all legs that may leave.
func (m *Moves) Running() []*Leg {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all))
}

// Add takes in a leg that runs, until its end.
func (m *Moves) Add(one *Leg) {
	one.moves = m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[one] = struct{}{}
}

// End takes a leg out that has ended, and returns what it was asked, if anything. The gateway
// asks it no more.
func (d *Leg) End() (last order, asked bool) {
	m := d.moves
	m.deciding.Lock()
	defer m.deciding.Unlock()
	m.mu.Lock()
	delete(m.all, d)
	m.mu.Unlock()
	d.ended = true
	d.order.settle()
	return d.last()
}

// Asked is what the leg was asked last, if anything.
func (d *Leg) Asked() (last order, asked bool) {
	d.moves.deciding.Lock()
	defer d.moves.deciding.Unlock()
	return d.last()
}

// last is asked, whose caller holds deciding.
func (d *Leg) last() (last order, asked bool) {
	if d.order == nil {
		return last, false
	}
	return d.order.order, true
}

// Stands tells whether what the leg was asked keeps it from being asked again.
func (d *Leg) Stands(why lifecycle.MoveReason) bool {
	d.moves.deciding.Lock()
	defer d.moves.deciding.Unlock()
	return d.order.stands(why)
}

// At are the legs at an engine.
func (m *Moves) At(e *roster.Engine) []*Leg {
	m.mu.Lock()
	defer m.mu.Unlock()
	var there []*Leg
	for one := range m.all {
		if one.Engine == e {
			there = append(there, one)
		}
	}
	return there
}

// Of is the leg of a request, nil where none may leave.
func (m *Moves) Of(request string) *Leg {
	m.mu.Lock()
	defer m.mu.Unlock()
	for one := range m.all {
		if one.ID == request {
			return one
		}
	}
	return nil
}

// Drain has every request leave an engine that is about to go, as far as there is an engine to
// leave for.
func (m *Moves) Drain(e *roster.Engine) {
	for _, d := range m.At(e) {
		m.Ask(d, lifecycle.ByDrain)
	}
}

// Ask asks a leg to leave where another engine is better for it, and waits for nothing. It is
// false where the leg stays, and returns what it was asked before where that was the case.
func (m *Moves) Ask(d *Leg, why lifecycle.MoveReason) (now order, asked bool) {
	m.deciding.Lock()
	defer m.deciding.Unlock()
	if d.ended || d.order.stands(why) {
		return d.last()
	}
	if !why.Leaves() && !d.takesItsCache() {
		return now, false // to compute it all again is no gain
	}
	kind := d.Kind
	candidates := m.options.Roster.Candidates(request.Wanted{Request: d.Request, Avoid: d.Avoid, Kind: &kind}, time.Now())
	to, reason, better := m.better(d, why, candidates)
	target := m.options.Roster.Get(to)
	if !better || target == nil {
		return now, false
	}
	m.order(d, why, target, reason)
	return d.last()
}

// better is where a leg goes on better.
func (m *Moves) better(d *Leg, why lifecycle.MoveReason, candidates []placement.Engine) (to string, reason placement.Reason, ok bool) {
	r := placement.Request{Turn: m.options.Turns(), Phase: placement.Phases(d.Phase.Load())}
	switch {
	case why == lifecycle.ByRoom:
		return placement.MoveToRoom(candidates, d.Engine.Key, r, m.options.Place)
	case why == lifecycle.ByThought && !d.Engine.Phases.Suits(r.Phase):
		return placement.MoveToPhase(candidates, d.Engine.Key, r, m.options.Place)
	}
	return placement.Move(candidates, d.Engine.Key, r, m.options.Place, why.Leaves(), moveMargin)
}

// takesItsCache tells whether the request could go on with its cache elsewhere, as far as is
// known: an engine that only decodes, or that has lost its agent, offers nothing.
func (d *Leg) takesItsCache() bool {
	return d.Kind == openai.KindMeridian || d.Engine.Offers()
}

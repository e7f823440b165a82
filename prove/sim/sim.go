// Package sim is the seeded world: real agents, their links and their grants
// over a network, a directory, memory and clocks that are made up, all from one
// seed. The same seed gives the same events in the same order, so that whatever
// goes wrong can be watched again.
//
//	           ┌──────────────── world: one queue of events, one clock ───────────────┐
//	client ──► agent.Agent ──► Fabric ─► link.Poster ═ stream ═ pipe ═ stream ═ link.Server
//	(random     (the product)  (made up)  (the product)      (made up)           (the product)
//	 work)          │                                            ▲                    │
//	        directory.Directory over a store that is made up   faults               memory
//	                                                                                  ▲
//	                         checkers: every byte that is taken or placed, every end ─┘
//
// Everything happens on one goroutine. The two places where the product starts
// goroutines or waits are turned into events: the agent's background work, and
// bare notifications, which run as coroutines. A lease's keeper is a goroutine
// of package meta; the world stands still whenever one of them is awake.
//
// A world has three parts: work under faults, then a while without faults, in
// which whatever still runs must end, then the closing, after which nothing may
// be left. Which faults there are, and how often, is drawn for each seed.
//
// The worlds of hand-offs and those of the object cache are other kinds: packages
// handoffsim and storesim have them. They are run by seed, told and replayed like the
// others.
package sim

import (
	"meridian/internal/seeded"
	"meridian/keep/store/storesim"
	"meridian/move/transceiver/handoff/handoffsim"
)

// Options says which world.
type Options struct {
	World Kind // default Agents
	Seed  uint64
	// Faults that may be drawn in a world of agents; nil means all.
	Faults []Fault
}

// Result is what became of a world.
type Result struct {
	Options   Options
	Violation *Violation // nil: all promises were kept
	Tally     Tally
	about     *transfer // that the violation is about, if it is about one
	story     []entry
	world     string // what was drawn for it
	state     string // of everything, when the promise was broken
}

// Violation is a promise that was broken.
type Violation = seeded.Violation

// Run lives through one world.
func Run(o Options) *Result {
	var s reusable
	r := s.run(o)
	s.arenas.close()
	return r
}

// reusable is where worlds are played, one after the other. It keeps what is costly
// to make, and nothing that carries over from one world to the next.
type reusable struct {
	arenas  arenas
	digests digests
	story   []entry
}

// run plays a world. One that comes to a standstill in the product, over a lock
// or a channel, is given up, and the stage with it.
func (s *reusable) run(o Options) *Result {
	var r *Result
	done := make(chan struct{})
	go func() {
		defer close(done)
		r = s.play(o)
	}()
	if ended(done) {
		return r
	}
	*s = reusable{}
	stuck := Violation{Rule: "worlds end", What: "this one stands still:\n" + allStacks()}
	return &Result{Options: o, Violation: &stuck, Tally: Tally{Worlds: 1}}
}

func (s *reusable) play(o Options) *Result {
	switch o.World {
	case HandOffs:
		lived := handoffsim.Run(o.Seed)
		return retold(s, o, lived, Tally{Events: lived.Tally.Events, HandOffs: lived.Tally})
	case Store:
		lived := storesim.Run(o.Seed)
		return retold(s, o, lived, Tally{Events: lived.Tally.Events, Store: lived.Tally})
	}
	w := newWorld(s, o)
	s.story = nil // the world's, and then the result's, until it is given back
	w.live()
	w.tally.Events = uint64(w.events)
	w.tally.Simulated = w.now
	return &Result{Options: o, Violation: w.violation, about: w.about, Tally: w.tally, story: w.story, world: w.swarm.String(), state: w.state}
}

// retold is the result of another room's world as one of these.
func retold[T any](s *reusable, o Options, lived *seeded.Result[T], counts Tally) *Result {
	counts.Worlds, counts.Simulated = 1, lived.Simulated
	r := &Result{Options: o, Violation: lived.Violation, Tally: counts, world: lived.World, state: lived.State, story: s.story}
	s.story = nil // the result's, until it is given back
	for _, e := range lived.Story {
		r.story = append(r.story, entry{Entry: e})
	}
	return r
}

// reuse takes back what a result holds, once its reader has done with it.
func (s *reusable) reuse(r *Result) {
	clear(r.story)
	s.story, r.story = r.story[:0], nil
}

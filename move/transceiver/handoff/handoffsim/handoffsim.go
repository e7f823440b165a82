// Package handoffsim is the seeded world of hand-offs: the machines of package
// handoff, on hosts, engines, memory, a network and clocks that are made up. The
// same seed gives the same events in the same order.
//
//	requests ─► Offer, Accept, Cancel …          told ready, failed, freed ─► checked
//	                 │                                   ▲
//	              ┌──▼────────────── process ────────────┴┐
//	              │ SourceHome  DestinationHome  Follower │ (the product)
//	              └──┬───────────▲──────────┬───────────▲─┘
//	             messages        │     plans, grants, moves, quiet
//	                 └─► lost, late, twice  └─► engines with real bytes
//
// Every engine has its own ranks, layout and block size, and bytes in the memory
// of each rank. The next owner of a block that was freed scribbles on it at once,
// and every byte that moves is looked at: it must belong to the hand-off that
// moves it.
//
// A world has two parts: work under trouble, then a while without, in which
// everything must end and nothing may be left. Which trouble there is, is drawn
// for each seed; every fifth seed has none, and there all must go well.
package handoffsim

import (
	"fmt"
	"strings"
	"time"

	"meridian/move/transceiver/handoff"
)

// Result is what became of a world.
type Result struct {
	Seed      uint64
	Violation *Violation // nil: all promises were kept
	Tally     Tally
	World     string // what was drawn for it
	State     string // of everything, when the promise was broken
	Simulated time.Duration
	Story     []Entry
}

// Violation is a promise that was broken.
type Violation struct {
	Rule, What string
	At         time.Duration
	Event      int // how much of the story came before
}

// Entry is one thing that happened, put into words only when a reader wants to
// read it.
type Entry struct {
	At     time.Duration
	Format string
	Args   []any
}

func (e *Entry) String() string {
	return fmt.Sprintf("%13.3fms  %s", float64(e.At)/float64(time.Millisecond), fmt.Sprintf(e.Format, e.Args...))
}

// Run lives through the world of a seed.
func Run(seed uint64) *Result {
	w := newWorld(seed, seed%5 == 0)
	w.live()
	r := &Result{Seed: seed, Violation: w.broken, Tally: w.tally, World: w.String(), Simulated: duration(w.now), Story: w.story}
	if w.broken != nil {
		r.State = w.state()
	}
	return r
}

// Tell is the violation and the last so many things before it.
func (r *Result) Tell(most int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s: %s\nthe world: %s\n", r.Seed, r.Violation.Rule, r.Violation.What, r.World)
	before := r.Story[:r.Violation.Event]
	for i := max(0, len(before)-most); i < len(before); i++ {
		fmt.Fprintln(&b, &before[i])
	}
	return b.String()
}

func duration(i handoff.Instant) time.Duration { return time.Duration(i) * time.Microsecond }

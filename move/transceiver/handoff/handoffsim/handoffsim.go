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

import "meridian/internal/seeded"

// Result is what became of a world.
type Result = seeded.Result[Tally]

// Run lives through the world of a seed.
func Run(seed uint64) *Result {
	w := newWorld(seed, seed%5 == 0)
	w.Live(w.play)
	w.tally.Events = w.Events
	r := &Result{Seed: seed, Violation: w.Broken, Tally: w.tally, World: w.String(), Simulated: seeded.Duration(w.Now), Story: w.Story}
	if w.Broken != nil {
		r.State = w.state()
	}
	return r
}

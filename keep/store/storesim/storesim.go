// Package storesim is the seeded world of the object cache: the machines of
// packages protocol, owner and master, over arenas of real bytes, on hosts with a
// network, a directory and clocks that are made up. The same seed gives the same
// events in the same order.
//
//	clients ─► Operation ──┐                          ┌─► value, miss, error ─► checked
//	producers ─► arena     │ messages: late, lost,    │
//	kept and found runs    │                          │
//	                       ▼ twice, out of order      │
//	   ┌──────────── process ────────────┐      ┌──── process ────┐
//	   │ Server ─ Owner ─ Heap ─ []byte  │ ◄──► │   Coordinator   │
//	   └──┬──────────────────────────────┘      └──┬──────────────┘
//	      └─► grants, revocations, seals,          └─► marks in the directory,
//	          deliveries: piece by piece               which elects and forgets
//
// The world looks into every owner after each of its events and knows when an
// object could be found first, and when no more. From that, and from what clients
// were told, it makes one history for each key, which porcupine judges by this
// model: a key has one value, or none.
//
//	put v      none ─► v          from its call to its answer, or, without an answer, to
//	                              when it could be found; what never could is left out
//	get v      v ─► v
//	remove     any ─► none        whether it says that it removed something or that
//	                              nothing was there; in doubt it is left out
//	lost v     v ─► none          when an owner let v go, at that moment; where its master
//	                              told it to, or it died without a lease, from its last
//	                              moment under a lease on
//
// Nothing else may take a value away. So two values of a key never stand at a time, and
// what was removed, evicted or given away never comes back. A miss says nothing in
// this model, because an owner may be away; a rule of its own says that what stood, at an
// owner with a lease, from a get's call to its answer is not missed. Another says that
// no put is told that its key exists if no value of it could be found meanwhile.
//
// Units are keys of another kind: they say what their values are, so that a tier may bring
// one back. A reader that holds one must find that value.
//
// A world has two parts: work under trouble, then a while without, in which
// everything must end and nothing may be left. Which trouble there is, is drawn
// for each seed; every fifth seed has none.
package storesim

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

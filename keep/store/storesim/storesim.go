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

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"meridian/kv"
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
	return b.String() + r.State
}

// Hash is one number for the whole story.
func (r *Result) Hash() uint64 {
	h := fnv.New64a()
	for i := range r.Story {
		fmt.Fprintln(h, &r.Story[i])
	}
	return h.Sum64()
}

func duration(i kv.Instant) time.Duration { return time.Duration(i) * time.Microsecond }

package handoffsim

import (
	"fmt"
	"strings"

	"meridian/internal/seeded"
	"meridian/move/transceiver/handoff"
)

// world is everything there is in one simulation: hosts, engines whose ranks
// live on them, requests that go from one engine to another, and what a network
// and crashes do to them. One seed gives one world, event by event.
type world struct {
	seeded.World[*process]
	plan    faults
	hosts   []*host
	engines []*engine
	all     []*request
	tally   Tally
}

// faults is which trouble a world has.
type faults struct {
	loss, twice, slow, partitions, crashes, cancels, linkFaults, otherBuild bool

	requests int
	sluggish bool // bytes take longer than leases last, which is no trouble
}

func newWorld(seed uint64, quiet bool) *world {
	w := &world{World: seeded.New[*process](seed, 400_000), tally: Tally{Worlds: 1}}
	some := func() bool { return !quiet && w.Draw.IntN(3) == 0 }
	w.plan = faults{
		loss: some(), twice: some(), slow: some(), partitions: some(), crashes: some(), cancels: some(), linkFaults: some(),
		otherBuild: !quiet && w.Draw.IntN(8) == 0, requests: 1 + w.Draw.IntN(6), sluggish: w.Draw.IntN(5) == 0,
	}
	if w.plan.otherBuild {
		w.tally.OtherBuilds++
	}
	for i := range 1 + w.Draw.IntN(5) {
		h := &host{world: w, name: string(rune('a' + i)), older: w.Draw.IntN(4) == 0}
		w.hosts = append(w.hosts, h)
		h.start()
	}
	model := drawModel(w.Draw)
	for i := range 2 + w.Draw.IntN(2) {
		w.engines = append(w.engines, newEngine(w, fmt.Sprintf("engine%d", i), model))
	}
	if w.Draw.IntN(3) == 0 {
		w.engines = append(w.engines, newStore(w, w.engines[0]))
	}
	return w
}

const (
	faultPhase = 20 * handoff.Second
	recovery   = 200 * handoff.Second
)

// play is a whole world: work under trouble, then a while without, in which
// everything must end.
func (w *world) play() {
	for range w.plan.requests {
		w.After(w.Span(0, 3*handoff.Second), nil, w.arrive)
	}
	w.mischief()
	w.RunUntil(faultPhase)
	w.heal()
	w.RunUntil(w.Now + recovery)
	w.inspect()
}

// heal ends all trouble; processes that are down come back.
func (w *world) heal() {
	w.Calm = true
	w.Note("trouble ends")
	for _, h := range w.hosts {
		h.cut = nil
		if h.process == nil {
			h.start()
		}
	}
	for _, e := range w.engines {
		e.rise()
	}
}

// mischief makes trouble now and then.
func (w *world) mischief() {
	w.After(w.Span(10*handoff.Millisecond, handoff.Second), nil, func() {
		if w.Calm {
			return
		}
		h := w.hosts[w.Chance.IntN(len(w.hosts))]
		switch {
		case w.plan.crashes && w.Chance.IntN(8) == 0:
			h.crash()
		case w.plan.partitions && w.Chance.IntN(3) == 0:
			other := w.hosts[w.Chance.IntN(len(w.hosts))]
			w.tally.Partitions++
			w.Note("%s and %s are cut off from one another", h.name, other.name)
			h.cutOff(other, true)
			w.After(w.Span(50*handoff.Millisecond, 8*handoff.Second), nil, func() { h.cutOff(other, false) })
		}
		w.mischief()
	})
}

// inspect looks for what is left when nothing should be.
func (w *world) inspect() {
	for _, r := range w.all {
		r.inspect()
	}
	for _, h := range w.hosts {
		p := h.process
		switch {
		case w.Broken != nil || p == nil:
		case p.source.Len() != 0:
			w.Violate("everything ends", "%s still holds %d offers", p, p.source.Len())
		case p.source.StoreBytes() != 0:
			w.Violate("everything ends", "%s still holds %d bytes of units", p, p.source.StoreBytes())
		case p.destination.Len() != 0:
			w.Violate("everything ends", "%s still takes %d hand-offs", p, p.destination.Len())
		case p.follower.Len() != 0:
			w.Violate("everything ends", "the follower of %s still has %d sessions", p, p.follower.Len())
		case len(p.grants) != 0:
			w.Violate("everything ends", "%s still has %d grants", p, len(p.grants))
		}
	}
}

// String is what was drawn.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d hosts, %d requests", len(w.hosts), w.plan.requests)
	for _, e := range w.engines {
		fmt.Fprintf(&b, "; %s: %v, %s, blocks of %d", e.id, e.side.Parallelism, e.side.Layout.Axes(), e.side.BlockTokens)
	}
	trouble := seeded.Trouble{
		{"loss", w.plan.loss},
		{"duplicates", w.plan.twice},
		{"delays", w.plan.slow},
		{"partitions", w.plan.partitions},
		{"crashes", w.plan.crashes},
		{"cancels", w.plan.cancels},
		{"broken links", w.plan.linkFaults},
		{"another build", w.plan.otherBuild},
		{"slow transfers", w.plan.sluggish},
	}
	fmt.Fprintf(&b, "; trouble: %s", trouble)
	return b.String()
}

// state is how everything stands.
func (w *world) state() string {
	var b strings.Builder
	for _, h := range w.hosts {
		p := h.process
		if p == nil {
			fmt.Fprintf(&b, "  %s: down\n", h.name)
			continue
		}
		fmt.Fprintf(&b, "  %v: %d offers, %d accepts, %d sessions of its follower, %d grants\n", p, p.source.Len(), p.destination.Len(), p.follower.Len(), len(p.grants))
	}
	for _, e := range w.engines {
		kept := 0
		for _, k := range e.owners {
			if k != nil {
				kept++
			}
		}
		fmt.Fprintf(&b, "  %s: alive %t, epoch %d, %d of %d blocks kept\n", e.id, e.alive, e.epoch, kept, len(e.owners))
	}
	return b.String()
}

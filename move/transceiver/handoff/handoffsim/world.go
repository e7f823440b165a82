package handoffsim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

// world is everything there is in one simulation: hosts, engines whose ranks
// live on them, requests that go from one engine to another, and what a network
// and crashes do to them. One seed gives one world, event by event.
type world struct {
	draw    *rand.Rand // what there is and what is wanted
	chance  *rand.Rand // what goes wrong
	now     handoff.Instant
	queue   queue
	serial  int
	plan    faults
	hosts   []*host
	engines []*engine
	all     []*request
	calm    bool // nothing goes wrong any more
	story   []Entry
	broken  *Violation // the first promise that was broken
	tally   Tally
}

// faults is which trouble a world has.
type faults struct {
	loss, twice, slow, partitions, crashes, cancels, linkFaults, otherBuild bool

	requests int
	sluggish bool // bytes take longer than leases last, which is no trouble
}

type event struct {
	at     handoff.Instant
	serial int
	on     *process // nil: the world's own
	run    func()
}

type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, k int) bool {
	return q[i].at < q[k].at || q[i].at == q[k].at && q[i].serial < q[k].serial
}
func (q queue) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}

func newWorld(seed uint64, quiet bool) *world {
	w := &world{draw: rand.New(rand.NewPCG(seed, 1)), chance: rand.New(rand.NewPCG(seed, 2)), tally: Tally{Worlds: 1}}
	some := func() bool { return !quiet && w.draw.IntN(3) == 0 }
	w.plan = faults{
		loss: some(), twice: some(), slow: some(), partitions: some(), crashes: some(), cancels: some(), linkFaults: some(),
		otherBuild: !quiet && w.draw.IntN(8) == 0, requests: 1 + w.draw.IntN(6), sluggish: w.draw.IntN(5) == 0,
	}
	if w.plan.otherBuild {
		w.tally.OtherBuilds++
	}
	for i := range 1 + w.draw.IntN(5) {
		h := &host{world: w, name: string(rune('a' + i)), older: w.draw.IntN(4) == 0}
		w.hosts = append(w.hosts, h)
		h.start()
	}
	model := drawModel(w.draw)
	for i := range 2 + w.draw.IntN(2) {
		w.engines = append(w.engines, newEngine(w, fmt.Sprintf("engine%d", i), model))
	}
	if w.draw.IntN(3) == 0 {
		w.engines = append(w.engines, newStore(w, w.engines[0]))
	}
	return w
}

// after has something happen, on a process if it still lives then.
func (w *world) after(d handoff.Instant, on *process, run func()) {
	w.serial++
	heap.Push(&w.queue, event{w.now + max(0, d), w.serial, on, run})
}

// runUntil lets events happen.
func (w *world) runUntil(end handoff.Instant, done func() bool) {
	for w.broken == nil && len(w.queue) > 0 && w.queue[0].at <= end && !done() {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		if e.on != nil && e.on.dead {
			continue
		}
		if w.tally.Events++; w.tally.Events > 400_000 {
			w.violate("worlds end", "%d events", w.tally.Events)
			return
		}
		e.run()
		if e.on != nil {
			e.on.rearm()
		}
	}
	if w.broken == nil && !done() {
		w.now = max(w.now, end)
	}
}

const (
	faultPhase = 20 * handoff.Second
	recovery   = 200 * handoff.Second
)

// live plays a world: work under trouble, then a while without, in which
// everything must end.
func (w *world) live() {
	defer func() {
		if cause := recover(); cause != nil {
			w.violate("nothing panics", "%v", cause)
		}
	}()
	for range w.plan.requests {
		w.after(w.span(0, 3*handoff.Second), nil, w.arrive)
	}
	w.mischief()
	w.runUntil(faultPhase, func() bool { return false })
	w.heal()
	w.runUntil(w.now+recovery, func() bool { return false })
	w.inspect()
}

// heal ends all trouble; processes that are down come back.
func (w *world) heal() {
	w.calm = true
	w.note("trouble ends")
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
	w.after(w.span(10*handoff.Millisecond, handoff.Second), nil, func() {
		if w.calm {
			return
		}
		h := w.hosts[w.chance.IntN(len(w.hosts))]
		switch {
		case w.plan.crashes && w.chance.IntN(8) == 0:
			h.crash()
		case w.plan.partitions && w.chance.IntN(3) == 0:
			other := w.hosts[w.chance.IntN(len(w.hosts))]
			w.tally.Partitions++
			w.note("%s and %s are cut off from one another", h.name, other.name)
			h.cutOff(other, true)
			w.after(w.span(50*handoff.Millisecond, 8*handoff.Second), nil, func() { h.cutOff(other, false) })
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
		case w.broken != nil || p == nil:
		case p.source.Len() != 0:
			w.violate("everything ends", "%s still holds %d offers", p, p.source.Len())
		case p.source.StoreBytes() != 0:
			w.violate("everything ends", "%s still holds %d bytes of units", p, p.source.StoreBytes())
		case p.destination.Len() != 0:
			w.violate("everything ends", "%s still takes %d hand-offs", p, p.destination.Len())
		case p.follower.Len() != 0:
			w.violate("everything ends", "the follower of %s still has %d sessions", p, p.follower.Len())
		case len(p.grants) != 0:
			w.violate("everything ends", "%s still has %d grants", p, len(p.grants))
		}
	}
}

func (w *world) violate(rule, format string, args ...any) {
	if w.broken == nil {
		w.broken = &Violation{Rule: rule, What: fmt.Sprintf(format, args...), At: duration(w.now), Event: len(w.story)}
	}
}

func (w *world) note(format string, args ...any) {
	w.story = append(w.story, Entry{duration(w.now), format, args})
}

// String is what was drawn.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d hosts, %d requests", len(w.hosts), w.plan.requests)
	for _, e := range w.engines {
		fmt.Fprintf(&b, "; %s: %v, %s, blocks of %d", e.id, e.side.Parallelism, e.side.Layout.Axes(), e.side.BlockTokens)
	}
	var trouble []string
	for _, t := range []struct {
		name string
		on   bool
	}{
		{"loss", w.plan.loss},
		{"duplicates", w.plan.twice},
		{"delays", w.plan.slow},
		{"partitions", w.plan.partitions},
		{"crashes", w.plan.crashes},
		{"cancels", w.plan.cancels},
		{"broken links", w.plan.linkFaults},
		{"another build", w.plan.otherBuild},
		{"slow transfers", w.plan.sluggish},
	} {
		if t.on {
			trouble = append(trouble, t.name)
		}
	}
	fmt.Fprintf(&b, "; trouble: %s", strings.Join(trouble, ", "))
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

// span draws a time, short ones as likely as long ones.
func (w *world) span(low, high handoff.Instant) handoff.Instant {
	for high > 2*low+2 && w.chance.IntN(3) > 0 {
		high = low + (high-low)/4
	}
	return low + handoff.Instant(w.chance.Int64N(int64(high-low)+1))
}

func (w *world) id() (id kv.ID) {
	for i := range id {
		id[i] = byte(w.draw.Uint32())
	}
	return id
}

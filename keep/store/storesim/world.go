package storesim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"

	"meridian/kv"
)

// world is everything there is in one simulation. One seed gives one world, event
// by event.
type world struct {
	draw   *rand.Rand // what there is and what is wanted
	chance *rand.Rand // what goes wrong
	now    kv.Instant
	queue  queue
	serial int
	plan   faults
	hosts  []*host
	dir    directory
	keys   []*key
	units  []*key   // of one run, which tiers keep
	values []*value // by number - 1
	calls  []*call
	points int64 // of history: one after the other
	calm   bool  // nothing goes wrong any more
	story  []Entry
	broken *Violation // the first promise that was broken
	tally  Tally
}

// faults is which trouble a world has.
type faults struct {
	loss, twice, slow, cuts, crashes, pauses, rogues, producers, lag, tiers bool

	operations int
	arena      int
	headers    uint32
	offers     int
	policy     int
}

type event struct {
	at     kv.Instant
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
	some := func() bool { return !quiet && w.draw.IntN(5) < 2 }
	w.plan = faults{
		loss: some(), twice: some(), slow: some(), cuts: some(), crashes: some(), pauses: some(), rogues: some(), producers: w.draw.IntN(3) == 0, lag: some(), tiers: some(),
		operations: 20 + w.draw.IntN(100), arena: (28 + w.draw.IntN(80)) << 10, headers: uint32(12 + w.draw.IntN(30)),
		offers: w.draw.IntN(2), policy: w.draw.IntN(3),
	}
	for i := range 1 + w.draw.IntN(5) {
		w.keys = append(w.keys, newKey(fmt.Sprintf("k%d", i)))
	}
	w.newUnits()
	owners := 1 + w.draw.IntN(3)
	masters := 1 + w.draw.IntN(2)
	for i := range max(owners, masters) + 1 + w.draw.IntN(2) {
		w.hosts = append(w.hosts, &host{world: w, name: string(rune('a' + i)), owns: i < owners, leads: i >= 1 && i <= masters, cut: make(map[string]int), tier: make(map[*key]*kept)})
	}
	for _, h := range w.hosts {
		h.start()
	}
	return w
}

// after has something happen, on a process if it still lives then.
func (w *world) after(d kv.Instant, on *process, run func()) {
	w.serial++
	heap.Push(&w.queue, event{w.now + max(0, d), w.serial, on, run})
}

// runUntil lets events happen. What would happen on a process that stands still
// happens when it goes on, in the same order.
func (w *world) runUntil(end kv.Instant) {
	for w.broken == nil && len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		if e.on != nil && e.on.dead {
			continue
		}
		if e.on != nil && e.on.still > w.now {
			e.at = e.on.still
			heap.Push(&w.queue, e)
			continue
		}
		if w.tally.Events++; w.tally.Events > 1_000_000 {
			w.violate("worlds end", "%d events", w.tally.Events)
			return
		}
		if e.on == nil {
			e.run()
			continue
		}
		e.on.before()
		e.run()
		e.on.observe()
	}
	if w.broken == nil {
		w.now = max(w.now, end)
	}
}

const (
	faultPhase = 20 * kv.Second
	recovery   = 20 * kv.Second
)

// live plays a world: work under trouble, then a while without, in which
// everything must end.
func (w *world) live() {
	defer func() {
		if cause := recover(); cause != nil {
			w.violate("nothing panics", "%v", cause)
		}
	}()
	w.elections()
	for range w.plan.operations {
		w.after(kv.Instant(w.draw.Int64N(int64(faultPhase))), nil, w.want)
	}
	if w.plan.producers {
		for range 5 + w.draw.IntN(20) {
			w.after(kv.Instant(w.draw.Int64N(int64(faultPhase))), nil, w.produce)
		}
	}
	for range w.draw.IntN(25) {
		w.after(kv.Instant(w.draw.Int64N(int64(faultPhase))), nil, w.keepRun)
	}
	for range w.draw.IntN(25) {
		w.after(kv.Instant(w.draw.Int64N(int64(faultPhase))), nil, w.findRun)
	}
	for range w.draw.IntN(40) {
		w.after(kv.Instant(w.draw.Int64N(int64(faultPhase+recovery/2))), nil, w.useUnits)
		w.after(kv.Instant(w.draw.Int64N(int64(faultPhase+recovery/2))), nil, w.findUnits)
	}
	w.mischief()
	w.runUntil(faultPhase)
	w.heal()
	w.runUntil(w.now + recovery)
	w.inspect()
	w.judge()
}

// heal ends all trouble; processes that are down come back.
func (w *world) heal() {
	w.calm = true
	w.note("trouble ends")
	for _, h := range w.hosts {
		clear(h.cut)
		if h.process == nil {
			h.start()
		}
	}
}

// mischief makes trouble now and then.
func (w *world) mischief() {
	w.after(w.span(10*kv.Millisecond, kv.Second), nil, func() {
		if w.calm {
			return
		}
		h := w.hosts[w.chance.IntN(len(w.hosts))]
		switch {
		case w.plan.crashes && w.chance.IntN(8) == 0:
			h.crash()
		case w.plan.pauses && w.chance.IntN(4) == 0:
			if p := h.process; p != nil {
				length := w.span(50*kv.Millisecond, 6*kv.Second)
				w.tally.Pauses++
				w.note("%v stands still for %v", p, duration(length))
				p.still = max(p.still, w.now+length)
			}
		case w.plan.tiers && w.chance.IntN(3) == 0:
			w.tierTrouble(h)
		case w.plan.cuts && w.chance.IntN(3) == 0:
			other, shortest := w.hosts[w.chance.IntN(len(w.hosts))].name, 50*kv.Millisecond
			if w.chance.IntN(3) == 0 {
				other, shortest = directoryName, seat // or no master would be deposed by it
			}
			w.tally.Cuts++
			w.note("%s and %s are cut off from one another", h.name, other)
			h.cut[other]++
			w.after(w.span(shortest, 8*kv.Second), nil, func() {
				if !w.calm {
					h.cut[other]--
				}
			})
		}
		w.mischief()
	})
}

func (w *world) violate(rule, format string, args ...any) {
	if w.broken == nil {
		w.broken = &Violation{Rule: rule, What: fmt.Sprintf(format, args...), At: duration(w.now), Event: len(w.story)}
	}
}

func (w *world) note(format string, args ...any) {
	w.story = append(w.story, Entry{duration(w.now), format, args})
}

// point is a moment of history, after all that were before.
func (w *world) point() int64 {
	w.points++
	return w.points
}

// String is what was drawn.
func (w *world) String() string {
	var trouble []string
	for _, t := range []struct {
		name string
		on   bool
	}{
		{"loss", w.plan.loss},
		{"duplicates", w.plan.twice},
		{"delays", w.plan.slow},
		{"cuts", w.plan.cuts},
		{"crashes", w.plan.crashes},
		{"pauses", w.plan.pauses},
		{"rogue writers", w.plan.rogues},
		{"producers", w.plan.producers},
		{"old views", w.plan.lag},
		{"bad tiers", w.plan.tiers},
	} {
		if t.on {
			trouble = append(trouble, t.name)
		}
	}
	owners, masters := 0, 0
	for _, h := range w.hosts {
		if h.owns {
			owners++
		}
		if h.leads {
			masters++
		}
	}
	return fmt.Sprintf("%d hosts, %d owners with %d KiB and %d headers each, %d that may be master, %d keys, %d operations; trouble: %s", len(w.hosts), owners,
		w.plan.arena>>10, w.plan.headers, masters, len(w.keys), w.plan.operations, strings.Join(trouble, ", "))
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
		fmt.Fprintf(&b, "  %v:", p)
		if p.server != nil {
			s := p.objects.Stats()
			fmt.Fprintf(&b, " answers %t; %d ready, %d being written, %d of %d bytes used; %d grants, %d deliveries", p.server.Answers(p.clock()), s.Ready, s.Writing,
				s.HeapUsed, s.HeapTotal, len(p.grants), len(p.deliveries))
		}
		if p.coordinator != nil {
			fmt.Fprintf(&b, " master of term %d", p.term)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// span draws a time, short ones as likely as long ones.
func (w *world) span(low, high kv.Instant) kv.Instant {
	for high > 2*low+2 && w.chance.IntN(3) > 0 {
		high = low + (high-low)/4
	}
	return low + kv.Instant(w.chance.Int64N(int64(high-low)+1))
}

func (w *world) id() (id kv.ID) {
	for i := range id {
		id[i] = byte(w.draw.Uint32())
	}
	return id
}

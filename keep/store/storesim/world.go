package storesim

import (
	"fmt"
	"strings"

	"meridian/internal/seeded"
	"meridian/kv"
)

// world is everything there is in one simulation. One seed gives one world, event
// by event.
type world struct {
	seeded.World[*process]
	plan   faults
	hosts  []*host
	dir    directory
	keys   []*key
	units  []*key   // of one run, which tiers keep
	values []*value // by number - 1
	calls  []*call
	points int64 // of history: one after the other
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

func newWorld(seed uint64, quiet bool) *world {
	w := &world{World: seeded.New[*process](seed, 1_000_000), tally: Tally{Worlds: 1}}
	some := func() bool { return !quiet && w.Draw.IntN(5) < 2 }
	w.plan = faults{
		loss: some(), twice: some(), slow: some(), cuts: some(), crashes: some(), pauses: some(), rogues: some(), producers: w.Draw.IntN(3) == 0, lag: some(), tiers: some(),
		operations: 20 + w.Draw.IntN(100), arena: (28 + w.Draw.IntN(80)) << 10, headers: uint32(12 + w.Draw.IntN(30)),
		offers: w.Draw.IntN(2), policy: w.Draw.IntN(3),
	}
	for i := range 1 + w.Draw.IntN(5) {
		w.keys = append(w.keys, newKey(fmt.Sprintf("k%d", i)))
	}
	w.newUnits()
	owners := 1 + w.Draw.IntN(3)
	masters := 1 + w.Draw.IntN(2)
	for i := range max(owners, masters) + 1 + w.Draw.IntN(2) {
		w.hosts = append(w.hosts, &host{world: w, name: string(rune('a' + i)), owns: i < owners, leads: i >= 1 && i <= masters, cut: make(map[string]int), tier: make(map[*key]*kept)})
	}
	for _, h := range w.hosts {
		h.start()
	}
	return w
}

const (
	faultPhase = 20 * kv.Second
	recovery   = 20 * kv.Second
)

// play is a whole world: work under trouble, then a while without, in which
// everything must end.
func (w *world) play() {
	w.elections()
	for range w.plan.operations {
		w.After(kv.Instant(w.Draw.Int64N(int64(faultPhase))), nil, w.want)
	}
	if w.plan.producers {
		for range 5 + w.Draw.IntN(20) {
			w.After(kv.Instant(w.Draw.Int64N(int64(faultPhase))), nil, w.produce)
		}
	}
	for range w.Draw.IntN(25) {
		w.After(kv.Instant(w.Draw.Int64N(int64(faultPhase))), nil, w.keepRun)
	}
	for range w.Draw.IntN(25) {
		w.After(kv.Instant(w.Draw.Int64N(int64(faultPhase))), nil, w.findRun)
	}
	for range w.Draw.IntN(40) {
		w.After(kv.Instant(w.Draw.Int64N(int64(faultPhase+recovery/2))), nil, w.useUnits)
		w.After(kv.Instant(w.Draw.Int64N(int64(faultPhase+recovery/2))), nil, w.findUnits)
	}
	w.mischief()
	w.RunUntil(faultPhase)
	w.heal()
	w.RunUntil(w.Now + recovery)
	w.inspect()
	w.judge()
}

// heal ends all trouble; processes that are down come back.
func (w *world) heal() {
	w.Calm = true
	w.Note("trouble ends")
	for _, h := range w.hosts {
		clear(h.cut)
		if h.process == nil {
			h.start()
		}
	}
}

// mischief makes trouble now and then.
func (w *world) mischief() {
	w.After(w.Span(10*kv.Millisecond, kv.Second), nil, func() {
		if w.Calm {
			return
		}
		h := w.hosts[w.Chance.IntN(len(w.hosts))]
		switch {
		case w.plan.crashes && w.Chance.IntN(8) == 0:
			h.crash()
		case w.plan.pauses && w.Chance.IntN(4) == 0:
			if p := h.process; p != nil {
				length := w.Span(50*kv.Millisecond, 6*kv.Second)
				w.tally.Pauses++
				w.Note("%v stands still for %v", p, seeded.Duration(length))
				p.still = max(p.still, w.Now+length)
			}
		case w.plan.tiers && w.Chance.IntN(3) == 0:
			w.tierTrouble(h)
		case w.plan.cuts && w.Chance.IntN(3) == 0:
			other, shortest := w.hosts[w.Chance.IntN(len(w.hosts))].name, 50*kv.Millisecond
			if w.Chance.IntN(3) == 0 {
				other, shortest = directoryName, seat // or no master would be deposed by it
			}
			w.tally.Cuts++
			w.Note("%s and %s are cut off from one another", h.name, other)
			h.cut[other]++
			w.After(w.Span(shortest, 8*kv.Second), nil, func() {
				if !w.Calm {
					h.cut[other]--
				}
			})
		}
		w.mischief()
	})
}

// point is a moment of history, after all that were before.
func (w *world) point() int64 {
	w.points++
	return w.points
}

// String is what was drawn.
func (w *world) String() string {
	trouble := seeded.Trouble{
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
		w.plan.arena>>10, w.plan.headers, masters, len(w.keys), w.plan.operations, trouble)
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

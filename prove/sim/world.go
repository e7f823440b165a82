package sim

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"meridian/internal/seeded"
	"meridian/kv"
	"meridian/move/mem"
)

// world is everything there is in one run.
type world struct {
	options Options
	stage   *reusable
	swarm   swarm
	// Each purpose has a source of chance of its own, so that a fault more or
	// less does not change what the clients want.
	work, road, mischief *rand.Rand

	now    time.Duration
	queue  seeded.Queue[time.Duration, *process]
	serial uint64
	events int
	fiber  *fiber // the coroutine that runs, if one does

	hosts         []*host
	processes     map[kv.ID]*process
	connections   []*connection
	store         *store // nil in a world without a directory
	network       network
	sections      map[*mem.Section]*region
	transfers     map[kv.ID]*transfer
	posted        []*transfer
	notices       []*notice
	calm          bool // no more faults
	untilMischief int

	story     []entry
	tally     Tally
	violation *Violation
	about     *transfer // that the violation is about, if it is about one
	state     string    // of everything, when the promise was broken
}

func newWorld(s *reusable, o Options) *world {
	w := &world{
		options: o, stage: s, story: s.story,
		work:      rand.New(rand.NewPCG(o.Seed, 1)),
		road:      rand.New(rand.NewPCG(o.Seed, 2)),
		mischief:  rand.New(rand.NewPCG(o.Seed, 3)),
		processes: make(map[kv.ID]*process),
		sections:  make(map[*mem.Section]*region), transfers: make(map[kv.ID]*transfer),
	}
	w.swarm = drawSwarm(rand.New(rand.NewPCG(o.Seed, 4)), o.Faults)
	w.tally.Worlds = 1
	return w
}

// live plays the three parts.
func (w *world) live() {
	defer w.clear()
	defer func() {
		if cause := recover(); cause != nil {
			w.violate("nothing panics", nil, "%v\n%s", cause, debug.Stack())
		}
	}()
	w.begin()
	w.turmoil()
	w.recovery()
	if w.violation != nil {
		w.state = w.describe() // not where it was found: locks are held there
	}
	w.closing()
}

// begin starts every host.
func (w *world) begin() {
	if w.swarm.directory {
		w.store = newStore(w)
	}
	w.network = newNetwork(w.swarm.hosts)
	for i := range w.swarm.hosts {
		h := &host{world: w, index: i, name: string(rune('a' + i))}
		w.hosts = append(w.hosts, h)
		h.start()
	}
}

// turmoil is work under faults.
func (w *world) turmoil() {
	w.nextErrand(w.swarm.errands)
	w.nextFault()
	w.runUntil(func() bool { return w.calm }, time.Hour)
}

// recovery is a while without faults: whatever runs must end by itself.
func (w *world) recovery() {
	w.heal()
	patience := w.now + 6*w.swarm.keepAlive + 10*time.Second
	w.runUntil(func() bool { return w.stillRunning() == nil }, patience)
	if t := w.stillRunning(); t != nil {
		w.violate("what runs ends", t, "%s has not ended %v after the last fault", t, 6*w.swarm.keepAlive+10*time.Second)
	}
	w.runUntil(w.roadsEmpty, w.now+5*w.swarm.keepAlive)
	for _, c := range w.connections {
		c.checkIdle()
	}
}

// roadsEmpty reports, now and then, whether nothing is on its way any more.
func (w *world) roadsEmpty() bool {
	return w.events%16 == 0 && !slices.ContainsFunc(w.connections, (*connection).busy)
}

// closing ends every agent; nothing may be left.
func (w *world) closing() {
	for _, h := range w.hosts {
		if w.violation == nil && h.process != nil {
			h.process.close()
		}
	}
}

// clear gives back what a world that broke off still holds.
func (w *world) clear() {
	for _, h := range w.hosts {
		if h.process != nil {
			h.process.discard()
		}
	}
}

// after has something happen to a process, d from now.
func (w *world) after(d time.Duration, p *process, run func()) {
	w.serial++
	w.queue.Push(seeded.Event[time.Duration, *process]{At: w.now + d, Serial: w.serial, On: p, Run: run})
}

// runUntil lets events happen until done, until the time is over, or until a
// promise is broken.
func (w *world) runUntil(done func() bool, limit time.Duration) {
	for w.violation == nil && !done() {
		if len(w.queue) == 0 || w.queue[0].At > limit {
			w.now = max(w.now, limit)
			return
		}
		w.step()
	}
}

func (w *world) step() {
	e := w.queue.Pop()
	w.now = e.At
	p := e.On
	switch {
	case p != nil && p.dead:
		return
	case p != nil && p.pausedUntil > w.now:
		// It happens when the process goes on, in the order in which it would
		// have happened.
		w.after(p.pausedUntil-w.now, p, e.Run)
		return
	}
	if w.events++; w.events > mostEvents {
		w.violate("worlds end", nil, "%d events", w.events)
		return
	}
	e.Run()
	if p != nil && !p.dead {
		p.look()
	}
}

// mostEvents is far more than any world needs.
const mostEvents = 1 << 20

// violate notes the first promise that is broken; t, where given, is the
// transfer that it is about.
func (w *world) violate(rule string, t *transfer, format string, args ...any) {
	if w.violation != nil {
		return
	}
	w.violation, w.about = &Violation{Rule: rule, What: fmt.Sprintf(format, args...), At: w.now, Event: len(w.story)}, t
}

// stillRunning returns a transfer of a living process that has not ended.
func (w *world) stillRunning() *transfer {
	for _, h := range w.hosts {
		if h.process != nil && len(h.process.running) > 0 {
			return h.process.running[0]
		}
	}
	return nil
}

// chance is true with probability p.
func chance(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

// between draws from [low, high], where small values are as likely as large ones
// by their order of magnitude.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	for span := high; span > 2*low && span > 1; {
		if half := span / 4; r.IntN(3) > 0 && half > low {
			span = half
			continue
		}
		return low + time.Duration(r.Int64N(int64(span-low)+1))
	}
	return low + time.Duration(r.Int64N(int64(max(1, high-low))))
}

// one picks an element.
func one[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// id draws an id.
func drawID(r *rand.Rand) (id kv.ID) {
	for i := 0; i < len(id); i += 8 {
		v := r.Uint64()
		for j := range 8 {
			id[i+j] = byte(v >> (8 * j))
		}
	}
	return id
}

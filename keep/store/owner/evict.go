package owner

import (
	"fmt"

	"meridian/keep/store/arena"
	"meridian/keep/store/extent"
	"meridian/kv"
)

// Policy says which objects leave first.
type Policy uint8

const (
	// LRU evicts what was asked for least recently.
	LRU Policy = iota
	// FIFO evicts what came first.
	FIFO
	// ByPriority evicts the lowest priority first, the least recent of it.
	ByPriority
)

var policyNames = [...]string{"lru", "fifo", "priority"}

func (p Policy) String() string {
	if int(p) >= len(policyNames) {
		return "unknown policy"
	}
	return policyNames[p]
}

// ParsePolicy reads the name that String writes.
func ParsePolicy(name string) (Policy, error) {
	for p, known := range policyNames {
		if known == name {
			return Policy(p), nil
		}
	}
	return 0, fmt.Errorf("store: unknown eviction policy %q: use lru, fifo or priority", name)
}

// order is who leaves first: lists of each tenant's account, the first to leave at their
// front.
type order struct {
	policy Policy
	accounts
}

// links are neighbours in a list, each plus 1; 0 for none.
type links struct{ before, after uint32 }

func newOrder(p Policy) order { return order{p, newAccounts(p)} }

func (o *order) listOf(e *entry) *links {
	lists := o.all[e.account].lists
	if o.policy == ByPriority {
		return &lists[e.priority]
	}
	return &lists[0]
}

// add puts an object at the back. One that is pinned is in no list, or a search
// would pass it by for ever.
func (o *order) add(entries []entry, i uint32) {
	if entries[i].pinned {
		return
	}
	list := o.listOf(&entries[i])
	entries[i].links = links{before: list.after}
	if list.after != 0 {
		entries[list.after-1].links.after = i + 1
	} else {
		list.before = i + 1
	}
	list.after = i + 1
}

func (o *order) remove(entries []entry, i uint32) {
	if entries[i].pinned {
		return
	}
	e, list := &entries[i], o.listOf(&entries[i])
	if e.links.before != 0 {
		entries[e.links.before-1].links.after = e.links.after
	} else {
		list.before = e.links.after
	}
	if e.links.after != 0 {
		entries[e.links.after-1].links.before = e.links.before
	} else {
		list.after = e.links.before
	}
	e.links = links{}
}

// touch notes that an object was asked for.
func (o *order) touch(now kv.Instant, entries []entry, i uint32) {
	o.all[entries[i].account].used = now
	if o.policy != FIFO {
		o.remove(entries, i)
		o.add(entries, i)
	}
}

// first is the object of an account that leaves first of those that are not read.
func (o *order) first(entries []entry, number uint8) (uint32, bool) {
	for _, list := range o.all[number].lists {
		for at := list.before; at != 0; at = entries[at-1].links.after {
			if entries[at-1].readers == 0 {
				return at - 1, true
			}
		}
	}
	return 0, false
}

// Used is the part of the heap that is taken.
func (w *Owner) Used() float64 {
	b := w.heap.Bounds()
	return float64(w.usedBytes()) / float64(b.Limit-b.Base)
}

func (w *Owner) usedBytes() uint64 { return w.space.Grown() - w.space.FreeBytes() }

// mayLeave and mayNotLeave count the room of objects that could leave now.
func (w *Owner) mayLeave(e *entry) {
	w.evictable += w.room(e)
	w.order.all[e.account].evictable += w.room(e)
}

func (w *Owner) mayNotLeave(e *entry) {
	w.evictable -= w.room(e)
	w.order.all[e.account].evictable -= w.room(e)
}

// evictOne lets one object go: of the tenant that is most above its fair share.
func (w *Owner) evictOne(now kv.Instant) bool {
	number, above, ok := w.order.loser(now, w.toShare())
	if !ok {
		return false
	}
	i, ok := w.order.first(w.entries, number)
	if !ok {
		return false
	}
	if number == copies {
		w.evictCopy(i)
		return true
	}
	w.drop(i)
	w.stats.Evictions++
	if above {
		w.stats.EvictedByShare++
	}
	return true
}

// EvictUntilBelow lets objects go until no more than a part of the heap is used, a batch at
// most, and reports how many left: none, when there is nothing left to do.
func (w *Owner) EvictUntilBelow(now kv.Instant, used float64) (evicted int) {
	for evicted < w.options.Batch && w.Used() > used && w.evictOne(now) {
		evicted++
	}
	return evicted
}

// Drain goes on to the low watermark from where the last call that made room came to, a batch at
// most.
func (w *Owner) Drain(now kv.Instant) { w.drain(now, 0) }

// drain lets objects go, once the high watermark was passed, until there is room below the low
// one for so many bytes more.
func (w *Owner) drain(now kv.Instant, bytes uint64) {
	if w.draining {
		b := w.heap.Bounds()
		below := max(0, w.options.Low-float64(bytes)/float64(b.Limit-b.Base))
		w.draining = w.EvictUntilBelow(now, below) == w.options.Batch
	}
}

// makeRoom finds an extent: of what was freed, of what was never given out, or of
// what objects leave that are evicted for it. Where as many have left as one call may let go,
// that is ErrMakingRoom.
func (w *Owner) makeRoom(now kv.Instant, need arena.Extent, isCopy bool) (extent.ID, error) {
	b := w.heap.Bounds()
	if free := b.Limit - b.Base - w.usedBytes(); need.Size > free+w.evictable {
		// Nothing that could leave makes enough room, so nothing does.
		return extent.None, w.full(fmt.Errorf("%d bytes are wanted, %d are free and %d could be", need.Size, free, w.evictable))
	}
	if float64(w.usedBytes()+need.Size) > w.options.High*float64(b.Limit-b.Base) {
		w.draining = true
	}
	if !isCopy { // for which nothing else leaves
		w.drain(now, need.Size)
	}
	for repairs, evicted := 0, 0; ; {
		if id := w.space.Allocate(need.Size, need.Align); id != extent.None {
			w.tellUsed()
			return id, nil
		}
		if at, ok := w.heap.TakeBump(need.Size, need.Align); ok && repairs < maxRepairs {
			if id, err := w.claim(now, at-b.Base, need.Size); err == nil {
				w.tellUsed()
				return id, nil
			}
			w.repair()
			repairs++
			continue
		}
		if w.takeRest(now) {
			continue
		}
		if evicted == w.options.Batch {
			return extent.None, ErrMakingRoom
		}
		if evicted++; !w.evictFor(now, isCopy) {
			return extent.None, w.full(fmt.Errorf("%d bytes are wanted, %d of %d are used", need.Size, w.usedBytes(), b.Limit-b.Base))
		}
	}
}

// takeRest makes what was never given out free, when it is too little for an object by
// itself: it may be enough together with what is free before it.
func (w *Owner) takeRest(now kv.Instant) bool {
	b := w.heap.Bounds()
	size := (b.Limit - w.heap.Bump()) / extent.Granule * extent.Granule
	if size == 0 {
		return false
	}
	at, ok := w.heap.TakeBump(size, extent.Granule)
	if !ok {
		return false // a producer was faster
	}
	id, err := w.claim(now, at-b.Base, size)
	if err != nil {
		return false
	}
	w.space.Free(id)
	return true
}

// full is why there is no room. What producers have put and the owner has yet to
// hear of, or to claim, may leave in a moment.
func (w *Owner) full(why error) error {
	if w.heap.Waiting() > 0 || w.arriving > 0 {
		return fmt.Errorf("%w: producers fill the arena faster than it hears of it: %w", ErrOverloaded, why)
	}
	w.stats.OutOfMemory++
	return fmt.Errorf("%w: %w", ErrFull, why)
}

// maxRepairs bounds what an owner does against a producer that scribbles while it
// looks for room.
const maxRepairs = 8

// claim takes bytes that the heap has given out. What was given out besides, to
// producers or to align these, is pending.
func (w *Owner) claim(now kv.Instant, offset, size uint64) (extent.ID, error) {
	if end := offset + size; end > w.space.Grown() {
		gap := offset > w.space.Grown()
		if err := w.space.Grow(end); err != nil {
			return extent.None, err
		}
		if gap {
			w.mark(now, offset)
		}
	}
	return w.space.Claim(offset, size)
}

// tellUsed lets producers that map the arena know how full it is.
func (w *Owner) tellUsed() { w.heap.SetUsed(uint32(100 * w.Used())) }

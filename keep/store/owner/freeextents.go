package owner

import (
	"maps"
	"slices"

	"meridian/keep/store/arena"
	"meridian/keep/store/extent"
	"meridian/kv"
)

// freeExtents are the extents that producers may take without asking.
type freeExtents struct {
	count [arena.Classes]int
	class map[uint32]int // by header
}

func (o *freeExtents) taken(i uint32) {
	if class, is := o.class[i]; is {
		o.count[class]--
		delete(o.class, i)
	}
}

// Scan does what no request asks for: it takes in objects whose announcement was lost,
// takes the room of dead producers back, and sets room aside for producers. It looks at some
// headers at a time, and goes on from there the next time; over says that it came to the last.
func (w *Owner) Scan(now kv.Instant) (over bool) {
	w.follow(now)
	used := w.heap.UsedHeaders()
	if w.looked >= used {
		w.looked = 0
	}
	for end, came := min(used, w.looked+maxScanned), 0; w.looked < end && came < maxCame; w.looked++ {
		if i := w.looked; int(i) >= len(w.entries) || w.entries[i].state == unknown || w.entries[i].state == offered {
			if w.take(now, i) {
				came++
			}
		}
	}
	w.reclaimPending(now)
	w.refreshOffers(now)
	return w.looked >= used
}

// maxScanned bounds how many headers one Scan looks at, and maxCame how many objects it takes in.
const (
	maxScanned = 1 << 15
	maxCame    = 1024
)

// reclaimPending frees what producers took of the heap so long ago that they must
// be dead, and the headers they took, whatever these say.
func (w *Owner) reclaimPending(now kv.Instant) {
	var overdue mark
	for len(w.grown) > 0 && now-w.grown[0].at > w.options.WriteTimeout {
		overdue = w.grown[0]
		w.grown = w.grown[1:]
	}
	w.overdue = max(w.overdue, overdue.headers)
	for end := min(w.overdue, w.heap.UsedHeaders(), w.reclaimed+maxScanned); w.reclaimed < end; w.reclaimed++ {
		i := w.reclaimed // those before are known
		if w.know(i); w.entries[i].state == unknown {
			epoch := w.heap.Word(i).Epoch()
			w.heap.Kill(i, epoch)
			w.entries[i] = entry{epoch: epoch, extent: extent.None, state: idle}
			w.spare = append(w.spare, i)
		}
	}
	type run struct{ offset, size uint64 }
	var runs []run
	w.space.Pending(func(offset, size uint64) {
		if offset < overdue.bump {
			runs = append(runs, run{offset, min(size, overdue.bump-offset)})
		}
	})
	for _, run := range runs {
		if w.space.Reclaim(run.offset, run.size) == nil {
			w.stats.Reclaims++
		}
	}
	if len(runs) > 0 {
		w.tellUsed()
	}
}

// refreshOffers takes back what was offered so long ago that a producer may have
// died with it, and offers anew.
func (w *Owner) refreshOffers(now kv.Instant) {
	if w.options.Offers == 0 {
		return
	}
	if w.offers.class == nil {
		w.offers.class = make(map[uint32]int)
	}
	for class := range arena.Classes {
		w.heap.Withdraw(class, func(i uint32) {
			if at, is := w.offers.class[i]; is && at == class {
				w.entries[i].since = now // it was still there
			}
		})
	}
	for _, i := range slices.Sorted(maps.Keys(w.offers.class)) {
		class := w.offers.class[i]
		switch e := &w.entries[i]; {
		case e.since == now: // still there: it goes back into its list below
			offset, size := w.space.At(e.extent)
			w.heap.Offer(class, i, w.heap.Bounds().Base+offset, size, e.epoch)
		case now-e.since > w.options.WriteTimeout:
			w.offers.taken(i)
			w.heap.Kill(i, e.epoch)
			w.stats.Reclaims++
			w.release(i)
		}
	}
	for class := range arena.Classes {
		for w.offers.count[class] < w.options.Offers && w.offer(now, class) {
		}
	}
}

// offer sets an extent aside, of what is free below the low watermark, as long as
// an eighth of the arena is enough for all that is set aside.
func (w *Owner) offer(now kv.Instant, class int) bool {
	size := arena.ClassBytes(class)
	b := w.heap.Bounds()
	aside := size
	for class, count := range w.offers.count {
		aside += uint64(count) * arena.ClassBytes(class)
	}
	if float64(w.usedBytes()+size) > w.options.Low*float64(b.Limit-b.Base) || aside > (b.Limit-b.Base)/8 {
		return false
	}
	id := w.space.Allocate(size, arena.Segment)
	if id == extent.None {
		return false
	}
	i, ok := w.spareHeader()
	if !ok {
		w.space.Free(id)
		return false
	}
	e := &w.entries[i]
	e.state, e.extent, e.since, e.epoch = offered, id, now, e.epoch+1
	w.offers.class[i] = class
	w.offers.count[class]++
	offset, have := w.space.At(id)
	w.heap.Offer(class, i, b.Base+offset, have, e.epoch)
	return true
}

// Stats are counters and gauges of an owner.
type Stats struct {
	HeapUsed  uint64 `json:"heap_used" metric:"meridian_store_heap_bytes,used"`
	HeapTotal uint64 `json:"heap_total" metric:"meridian_store_heap_bytes,total"`
	Ready     uint64 `json:"ready" metric:"meridian_store_objects,ready"`
	Writing   uint64 `json:"writing" metric:"meridian_store_objects,writing"`
	Waiting   uint64 `json:"ring_depth" metric:"meridian_store_ring_depth"` // announcements in the ring
	Hits      uint64 `json:"hits" metric:"meridian_store_lookups_total,hit"`
	Misses    uint64 `json:"misses" metric:"meridian_store_lookups_total,miss"`
	Evictions uint64 `json:"evictions" metric:"meridian_store_evictions_total,policy" less:"EvictedByShare,EvictedByQuota,EvictedCopies"`
	Reclaims  uint64 `json:"reclaims" metric:"meridian_store_reclaims_total"`
	Timeouts  uint64 `json:"timeouts" metric:"meridian_store_timeouts_total"`
	Refused   uint64 `json:"refused" metric:"meridian_store_refused_total"`

	OutOfMemory uint64 `json:"out_of_memory" metric:"meridian_store_out_of_memory_total"`
	Overloaded  uint64 `json:"overloaded" metric:"meridian_store_overloaded_total"`     // requests that were turned away, to come again
	CASFailures uint64 `json:"cas_failures" metric:"meridian_store_cas_failures_total"` // words of the arena that a producer was faster at
	Torn        uint64 `json:"torn"`                                                    // objects whose bytes were found to be broken as they were read
	BytesIn     uint64 `json:"bytes_in" metric:"meridian_store_bytes_total,in"`
	BytesOut    uint64 `json:"bytes_out" metric:"meridian_store_bytes_total,out"`

	Copies uint64 `json:"-"` // objects that leave first
	// Of the evictions, those of a tenant above its fair share, above its quota, and those of
	// copies.
	EvictedByShare uint64 `json:"-" metric:"meridian_store_evictions_total,share"`
	EvictedByQuota uint64 `json:"-" metric:"meridian_store_evictions_total,quota"`
	EvictedCopies  uint64 `json:"-" metric:"meridian_store_evictions_total,copy"`
}

// Stats is how the owner stands.
func (w *Owner) Stats() Stats {
	s, b := w.stats, w.heap.Bounds()
	s.Copies = uint64(w.order.all[copies].objects)
	s.HeapUsed, s.HeapTotal, s.Waiting, s.CASFailures = w.usedBytes(), b.Limit-b.Base, uint64(w.heap.Waiting()), w.heap.CASFailures()
	return s
}

// TurnedAway counts a request for which there was too much to do.
func (w *Owner) TurnedAway() { w.stats.Overloaded++ }

// Object is one that can be found, as an operator sees it.
type Object struct {
	Name       []byte
	Bytes      uint64
	Checksum   uint64
	AgeSeconds uint64 // since it was last asked for
	Readers    uint16
	Priority   uint8
	Pinned     bool
}

// List calls for each object that can be found, in no order that means anything,
// from a place on until it is told to stop, and returns the place to go on from; 0
// at the end. It looks at some entries at a time, also where none of them is an
// object.
func (w *Owner) List(now kv.Instant, after uint64, yield func(Object) bool) (next uint64) {
	for i := after; i < uint64(len(w.entries)); i++ {
		if i-after == maxLooked {
			return i
		}
		e := &w.entries[i]
		if e.state != ready {
			continue
		}
		if !yield(w.object(now, uint32(i))) {
			return i + 1
		}
	}
	return 0
}

// object describes one that is ready.
func (w *Owner) object(now kv.Instant, i uint32) Object {
	e, header, stored := &w.entries[i], w.header(i, arena.PageSize), w.heap.Load(i)
	return Object{
		Name: w.heap.Key(&header), Bytes: e.bytes, Checksum: stored.Checksum, Readers: e.readers, Priority: e.priority, Pinned: e.pinned,
		AgeSeconds: uint64(now/kv.Second) - min(stored.LastAccess, uint64(now/kv.Second)),
	}
}

// maxLooked bounds how many entries one List looks at.
const maxLooked = 1 << 16

// Package owner is the truth about one arena of an object cache: which objects
// it holds, who reads them, which leave when room is needed. It is pure: time is
// an argument, and the arena is memory. All it believes is in private memory;
// the arena is what others read and, where they may, write.
//
//	Reserve ──► writing ──Commit──► ready ──────────► (gone)
//	               │                  │  Remove, evicted   ▲
//	               │ Abort            └──► doomed ─────────┤ last reader gone
//	               └────────────────────────────────────────┘
//
//	offered ──(a producer takes it, writes, announces)──Ingest──► unclaimed ──Admit──► ready
//	                                  without sums: Unsummed──► writing ──┘
//
// A key may have another owner. So what comes without a word, from producers, is
// not found until its key is claimed; and how long a writer that asked first may
// take is known to the caller that let it in, which calls Abort.
//
// An object is found by the hash of its key. Two keys of one hash cannot both be
// kept: the second is refused, and never served for the first.
package owner

import (
	"cmp"
	"errors"
	"fmt"

	"meridian/keep/store/arena"
	"meridian/keep/store/extent"
	"meridian/kv"
)

// What can be wrong with a request.
var (
	ErrExists = errors.New("store: the key exists; values never change: remove it first")
	ErrBusy   = errors.New("store: the key is being written")
	// ErrOverloaded means that too much goes on: nothing was done, and asking again
	// later helps.
	ErrOverloaded = errors.New("store: the owner is overloaded")
	ErrCollision  = errors.New("store: another key has the same hash")
	ErrMissing    = errors.New("store: no such object")
	ErrFull       = errors.New("store: no room, and nothing that may be evicted")
	// ErrMakingRoom means that so many objects leave for one that is to be reserved that
	// others are to have their turns: a part of them has left, and Reserve is called again.
	ErrMakingRoom = errors.New("store: room is being made")
	ErrTooLarge   = errors.New("store: larger than the arena can hold")
	ErrStale      = errors.New("store: the reservation is no longer good")
)

// Options of an owner. Zero values mean the defaults.
type Options struct {
	Policy Policy
	// High is the used part of the heap above which objects are evicted, until
	// no more than Low is used; default 0.95 and 0.85.
	High, Low float64
	// WriteTimeout is how long a producer that does not ask the owner may take; default 30 s.
	WriteTimeout kv.Instant
	// MaxPinned is the part of the heap that pinned objects may take; default 0.5.
	// Pins beyond it are refused, or nothing could be evicted any more.
	MaxPinned float64
	// Tenant is whose a key is where a Put does not say it: room is shared among tenants.
	// Default: all are one's.
	Tenant func(key []byte) []byte
	// Part is which part of its tenant's objects a key is of: parts divide the share of their
	// tenant, and take nothing of another's. Default, and where it is empty: none.
	Part func(key []byte) []byte
	// Copy reports whether a key is of a copy of an object that has another key: these leave
	// first, and nothing but others of them leaves for one. Default: none is.
	Copy func(key []byte) bool
	// TenantQuota is the part of the heap that one tenant may have, or one part of a tenant's
	// objects; default all of it.
	TenantQuota float64
	// Offers is how many extents of each size class are set aside for producers
	// that map the arena; 0 for none.
	Offers int
	// Batch is how many objects one call lets go at most, or thereabouts, whose caller has a
	// lock; default 128.
	Batch int
}

func (o Options) withDefaults() Options {
	o.High = cmp.Or(o.High, 0.95)
	o.Low = cmp.Or(o.Low, 0.85)
	o.MaxPinned = cmp.Or(o.MaxPinned, 0.5)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*kv.Second)
	o.Batch = cmp.Or(o.Batch, 128)
	return o
}

// Owner holds the objects of one arena.
type Owner struct {
	heap    *arena.Heap
	space   *extent.Allocator // of the heap, from its base
	options Options
	index   map[uint64]uint32 // hash of a key to its header
	entries []entry           // by header
	spare   []uint32          // headers to be used again
	order   order
	leases  leases
	offers  freeExtents
	stuck   stuckRing
	grown   []mark // how far the heap was given out, and when
	// followed is how many headers were given out when that was last looked at.
	followed uint32
	// looked is how far Scan has looked for objects, reclaimed how far for headers of dead
	// producers, of those that are overdue.
	looked, reclaimed, overdue uint32
	arrived                    []uint64 // hashes that came from producers, for Arrived
	gone                       []uint64 // hashes that could be found and cannot any more, for Gone
	pinned                     uint64   // bytes of objects that are not evicted
	// evictable is the room of objects that could leave now, leased that of objects that
	// could if they were not read.
	evictable, leased uint64
	// arriving is how many objects are unclaimed.
	arriving int
	draining bool // from the high watermark to the low one
	stats    Stats
}

// entry is what the owner knows of a header.
type entry struct {
	hash      uint64
	bytes     uint64
	since     kv.Instant // reserved or offered
	extent    extent.ID
	epoch     uint32
	links     links
	keyLength uint16
	readers   uint16
	state     state
	priority  uint8
	account   uint8 // of its tenant, of an object
	pinned    bool
}

type state uint8

const (
	unknown state = iota // nothing that the owner gave out or took in
	idle                 // in spare
	offered              // to producers
	writing
	unclaimed // a producer wrote it; its key is not this owner's yet
	unsummed  // unclaimed, and its producer wrote no sums
	ready
	doomed // not found any more, still read
)

// New makes the owner of an arena that was just formatted.
func New(heap *arena.Heap, o Options) (*Owner, error) {
	o = o.withDefaults()
	if o.Low <= 0 || o.Low >= o.High || o.High > 1 {
		return nil, fmt.Errorf("store: watermarks %v and %v: want 0 < low < high <= 1", o.Low, o.High)
	}
	if !(o.TenantQuota >= 0 && o.TenantQuota <= 1) {
		return nil, fmt.Errorf("store: a quota of %v for a tenant: want a part of the heap, between 0 and 1", o.TenantQuota)
	}
	b := heap.Bounds()
	w := &Owner{
		heap: heap, space: extent.New(b.Limit - b.Base), options: o,
		index: make(map[uint64]uint32), order: newOrder(o.Policy),
		// Memory for all of them, which is touched as they come: to copy a million in order to
		// have room for one more takes too long.
		entries: make([]entry, 0, heap.Headers()),
	}
	return w, nil
}

// Put describes an object that is to be written.
type Put struct {
	Key      []byte
	Bytes    uint64
	PageSize uint32 // default arena.PageSize
	Pinned   bool
	Priority uint8
	// Tenant is who has it written, where that is proven; empty: the key says whose it is.
	Tenant string
}

// Plan is where a writer writes.
type Plan struct {
	Header  uint32
	Epoch   uint32
	KeyHash uint64
	Offset  uint64 // of the payload
	Bytes   uint64
	Pages   uint32
	// PageSize is that of the header.
	PageSize uint32
}

// Reserve makes room for an object, and keeps the key for its writer. After ErrMakingRoom it is
// called again, with the same.
func (w *Owner) Reserve(now kv.Instant, p Put) (Plan, error) {
	p.PageSize = cmp.Or(p.PageSize, arena.PageSize)
	if len(p.Key) == 0 || len(p.Key) > arena.MaxKey || p.Bytes == 0 {
		return Plan{}, fmt.Errorf("store: a key of %d bytes and a value of %d: keys have 1 to %d, values at least 1", len(p.Key), p.Bytes, arena.MaxKey)
	}
	hash := arena.HashKey(p.Key)
	if i, is := w.index[hash]; is {
		return Plan{}, w.refusal(i, p.Key)
	}
	bounds := w.heap.Bounds()
	heap := bounds.Limit - bounds.Base
	need := arena.ExtentOf(min(p.Bytes, heap), len(p.Key))
	if p.Bytes > heap || need.Size > heap {
		return Plan{}, fmt.Errorf("%w: %d bytes of %d", ErrTooLarge, p.Bytes, heap)
	}
	if p.Pinned && !w.mayPin(p.Bytes) {
		return Plan{}, fmt.Errorf("%w: %d bytes are pinned, and no more than %g of the heap may be", ErrFull, w.pinned, w.options.MaxPinned)
	}
	isCopy := w.isCopy(p.Key)
	err := error(nil)
	if isCopy {
		err = w.makeCopyRoom(need.Size)
	} else {
		err = w.makeOwnRoom(w.payerOf(p.Tenant, p.Key), need.Size)
	}
	if err != nil {
		return Plan{}, err
	}
	room, err := w.makeRoom(now, need, isCopy)
	if err != nil {
		return Plan{}, err
	}
	i, ok := w.takeHeader(now, isCopy)
	if !ok {
		w.space.Free(room)
		return Plan{}, fmt.Errorf("%w: all %d headers are taken", ErrFull, w.heap.Headers())
	}
	e := &w.entries[i]
	e.hash, e.bytes, e.keyLength, e.extent, e.since, e.state = hash, p.Bytes, uint16(len(p.Key)), room, now, writing
	e.pinned, e.priority, e.epoch = p.Pinned, p.Priority, e.epoch+1
	e.account = w.chargeKey(now, p.Tenant, p.Key, w.room(e))
	w.index[hash] = i
	w.pin(e)
	header := w.header(i, p.PageSize)
	header.Word = arena.MakeWord(arena.Reserved, e.epoch)
	w.heap.Place(i, &header)
	w.heap.PutKey(&header, p.Key)
	w.stats.Writing++
	return Plan{Header: i, Epoch: e.epoch, KeyHash: hash, Offset: header.PayloadBase, Bytes: p.Bytes, Pages: header.Pages, PageSize: p.PageSize}, nil
}

// mayPin reports whether so many bytes more may be kept from eviction.
func (w *Owner) mayPin(bytes uint64) bool {
	b := w.heap.Bounds()
	return float64(w.pinned+bytes) <= w.options.MaxPinned*float64(b.Limit-b.Base)
}

// pin and unpin count the bytes of an object that is pinned.
func (w *Owner) pin(e *entry) {
	if e.pinned {
		w.pinned += e.bytes
	}
}

func (w *Owner) unpin(e *entry) {
	if e.pinned {
		w.pinned -= e.bytes
	}
}

// refusal is why a key that is in the index cannot be reserved.
func (w *Owner) refusal(i uint32, key []byte) error {
	header := w.header(i, arena.PageSize)
	switch {
	case int(w.entries[i].keyLength) != len(key) || string(w.heap.Key(&header)) != string(key):
		return ErrCollision
	case w.entries[i].state != ready:
		return ErrBusy
	}
	return ErrExists
}

// header is a header as it must be, from private memory.
func (w *Owner) header(i, pageSize uint32) arena.Header {
	e := &w.entries[i]
	offset, _ := w.space.At(e.extent)
	h := arena.Header{
		KeyHash: e.hash, PageSize: pageSize, Pages: uint32((e.bytes-1)/uint64(pageSize) + 1), PayloadBase: w.heap.Bounds().Base + offset,
		Bytes: e.bytes, KeyLength: uint32(e.keyLength), Flags: arena.WithPriority(0, e.priority),
	}
	if e.pinned {
		h.Flags |= arena.Pinned
	}
	return h
}

// Commit ends a reservation whose payload is complete, with its sums behind it
// (arena.Heap has what writes them) and this checksum: the object can be found.
func (w *Owner) Commit(now kv.Instant, p Plan, checksum uint64) error {
	e, err := w.written(p)
	if err != nil {
		return err
	}
	header := w.header(p.Header, p.PageSize)
	header.Checksum = checksum
	header.Word = arena.MakeWord(arena.Ready, e.epoch)
	header.LastAccess = uint64(now / kv.Second)
	w.heap.Place(p.Header, &header)
	w.stats.Writing--
	w.becomeReady(p.Header)
	return nil
}

// Abort gives a reservation up. Nothing may write to its bytes any more.
func (w *Owner) Abort(p Plan) error {
	if _, err := w.written(p); err != nil {
		return err
	}
	w.drop(p.Header)
	return nil
}

// Reclaim is Abort of a writer that is dead or took too long.
func (w *Owner) Reclaim(p Plan) error {
	err := w.Abort(p)
	if err == nil {
		w.stats.Reclaims++
	}
	return err
}

// written is the entry of a reservation that still stands.
func (w *Owner) written(p Plan) (*entry, error) {
	if int(p.Header) >= len(w.entries) {
		return nil, fmt.Errorf("%w: no header %d", ErrStale, p.Header)
	}
	e := &w.entries[p.Header]
	if e.state != writing || e.epoch != p.Epoch || e.hash != p.KeyHash {
		return nil, fmt.Errorf("%w: header %d", ErrStale, p.Header)
	}
	return e, nil
}

// room is how many bytes of the heap an object takes.
func (w *Owner) room(e *entry) uint64 {
	_, size := w.space.At(e.extent)
	return size
}

func (w *Owner) becomeReady(i uint32) {
	e := &w.entries[i]
	w.trim(e.account, 0) // what producers wrote the owner could not refuse
	e.state = ready
	if !e.pinned {
		w.mayLeave(e)
	}
	w.order.add(w.entries, i)
	w.stats.Ready++
	w.stats.BytesIn += e.bytes
}

// Remove takes an object away. Its bytes stay as long as they are read.
func (w *Owner) Remove(key []byte) error {
	i, err := w.find(key)
	if err != nil {
		return err
	}
	w.drop(i)
	return nil
}

// RemoveHash takes an object away that is known by the hash of its key alone, and
// reports whether it was there. What is being written stays.
func (w *Owner) RemoveHash(hash uint64) bool {
	i, is := w.index[hash]
	if is = is && w.entries[i].state != writing; is {
		w.drop(i)
	}
	return is
}

// Hashes calls for each object that can be found, from a place on, of so many entries at a
// time, and returns the place to go on from; 0 at the end. What becomes ready meanwhile may be
// left out.
func (w *Owner) Hashes(from uint64, most int, yield func(hash uint64)) (next uint64) {
	end := min(from+uint64(most), uint64(len(w.entries)))
	for i := from; i < end; i++ {
		if w.entries[i].state == ready {
			yield(w.entries[i].hash)
		}
	}
	if end < uint64(len(w.entries)) {
		return end
	}
	return 0
}

// Entries is how many headers are known.
func (w *Owner) Entries() int { return len(w.entries) }

// Batch is that of Options.
func (w *Owner) Batch() int { return w.options.Batch }

// Gone is which objects could be found and cannot any more, since it was last
// called: removed, evicted, or found to be wrong.
func (w *Owner) Gone() []uint64 {
	gone := w.gone
	w.gone = nil
	return gone
}

// find is the header of an object that is ready.
func (w *Owner) find(key []byte) (uint32, error) {
	i, is := w.index[arena.HashKey(key)]
	if !is || w.entries[i].state != ready {
		return 0, ErrMissing
	}
	if err := w.refusal(i, key); errors.Is(err, ErrCollision) {
		return 0, fmt.Errorf("%w: %w", ErrMissing, ErrCollision)
	}
	return i, nil
}

// drop forgets an object, written or being written. It stays in memory while it
// is read.
func (w *Owner) drop(i uint32) {
	e := &w.entries[i]
	switch e.state {
	case ready:
		w.order.remove(w.entries, i)
		w.stats.Ready--
		if !e.pinned && e.readers == 0 {
			w.mayNotLeave(e)
		}
		w.gone = append(w.gone, e.hash)
	case writing:
		w.stats.Writing--
	case unclaimed, unsummed:
		w.arriving--
	}
	delete(w.index, e.hash)
	w.heap.Kill(i, e.epoch)
	if e.readers > 0 {
		e.state = doomed
		return
	}
	w.release(i)
}

// release gives header and extent of an object back that no reader has.
func (w *Owner) release(i uint32) {
	e := &w.entries[i]
	if e.state != offered {
		w.order.discharge(e.account, w.room(e))
	}
	w.space.Free(e.extent)
	w.unpin(e)
	w.entries[i] = entry{epoch: w.entries[i].epoch, extent: extent.None, state: idle}
	w.spare = append(w.spare, i)
	w.tellUsed()
}

// takeHeader is a header without an object.
func (w *Owner) takeHeader(now kv.Instant, isCopy bool) (uint32, bool) {
	for {
		if i, ok := w.spareHeader(); ok {
			return i, true
		}
		if !w.evictFor(now, isCopy) { // headers come back with the objects that leave
			return 0, false
		}
	}
}

// spareHeader is a header without an object: one that came back, or one that was
// never used.
func (w *Owner) spareHeader() (uint32, bool) {
	if n := len(w.spare); n > 0 {
		i := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return i, true
	}
	for range maxRepairs {
		i, ok := w.heap.TakeHeader()
		if !ok {
			return 0, false
		}
		if int(i) >= len(w.entries) {
			w.know(i)
			return i, true
		}
		w.repair() // it was given out before
	}
	return 0, false
}

// repair puts back what a producer has scribbled over.
func (w *Owner) repair() {
	w.stats.Refused++
	w.heap.Repair(w.heap.Bounds().Base+w.space.Grown(), uint32(len(w.entries)))
}

// know makes room for what is known of a header.
func (w *Owner) know(i uint32) {
	for int(i) >= len(w.entries) {
		w.entries = append(w.entries, entry{extent: extent.None})
	}
}

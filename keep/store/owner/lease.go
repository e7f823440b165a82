package owner

import (
	"errors"
	"fmt"
	"slices"

	"meridian/keep/store/arena"
	"meridian/kv"
)

// Location is where an object lies.
type Location struct {
	Header   uint32
	Epoch    uint32
	KeyHash  uint64
	Offset   uint64 // of the payload
	Bytes    uint64
	Checksum uint64
	PageSize uint32 // as the header has it
}

// LeaseID names a lease. 0 is none.
type LeaseID uint64

// Locate says where an object lies. It counts as use, and keeps nothing: what
// may be read for a while is leased.
func (w *Owner) Locate(now kv.Instant, key []byte) (Location, error) {
	i, err := w.find(key)
	if err != nil {
		w.stats.Misses++
		return Location{}, err
	}
	w.stats.Hits++
	w.order.touch(now, w.entries, i)
	w.heap.Touch(i, uint64(now/kv.Second))
	return w.location(i), nil
}

func (w *Owner) location(i uint32) Location {
	e := &w.entries[i]
	header, stored := w.header(i, arena.PageSize), w.heap.Load(i)
	return Location{
		Header: i, Epoch: e.epoch, KeyHash: e.hash, Offset: header.PayloadBase, Bytes: e.bytes, Checksum: stored.Checksum, PageSize: stored.PageSize,
	}
}

// Writing reports whether an object of that key is on its way in.
func (w *Owner) Writing(key []byte) bool {
	i, is := w.index[arena.HashKey(key)]
	return is && errors.Is(w.refusal(i, key), ErrBusy)
}

// Distrust lets an object go that was found to be broken.
func (w *Owner) Distrust(at Location) {
	if i, is := w.index[at.KeyHash]; is && i == at.Header && w.entries[i].epoch == at.Epoch && w.entries[i].state == ready {
		w.stats.Torn++
		w.drop(i)
	}
}

// Has reports whether an object is there, and counts as no use: a client that asks for
// many keys does not mean to read them all.
func (w *Owner) Has(key []byte) bool {
	_, err := w.find(key)
	return err == nil
}

// HasSum reports whether an object is there, and has this checksum.
func (w *Owner) HasSum(key []byte, checksum uint64) bool {
	i, err := w.find(key)
	return err == nil && w.heap.Load(i).Checksum == checksum
}

// Touch notes that objects were used as one run, each of which is worth nothing without
// those before it: the last of them leaves first.
func (w *Owner) Touch(now kv.Instant, run [][]byte) {
	for _, key := range slices.Backward(run) {
		if i, err := w.find(key); err == nil {
			w.order.touch(now, w.entries, i)
			w.heap.Touch(i, uint64(now/kv.Second))
		}
	}
}

// LeasedPart is the part of the heap that cannot be evicted because it is read. What
// several read counts once.
func (w *Owner) LeasedPart() float64 {
	b := w.heap.Bounds()
	return float64(w.leased) / float64(b.Limit-b.Base)
}

// maxReaders of one object at a time.
const maxReaders = 1 << 12

// Lease keeps an object in memory for its reader, until Release. No time ends it: a
// reader that stood still in the middle of a copy goes on with it.
func (w *Owner) Lease(now kv.Instant, key []byte) (Location, LeaseID, error) {
	at, err := w.Locate(now, key)
	if err != nil {
		return Location{}, 0, err
	}
	e := &w.entries[at.Header]
	if e.readers >= maxReaders {
		return Location{}, 0, fmt.Errorf("%w: %d read this object; try again", ErrOverloaded, e.readers)
	}
	if e.readers++; e.readers == 1 && !e.pinned {
		w.mayNotLeave(e)
		w.leased += w.room(e)
	}
	w.stats.BytesOut += e.bytes
	return at, w.leases.add(at.Header), nil
}

// Release ends a lease. One that has ended already is none.
func (w *Owner) Release(id LeaseID) {
	if i, is := w.leases.end(id); is {
		w.unread(i)
	}
}

// Overdue is Release of a reader that took too long.
func (w *Owner) Overdue(id LeaseID) {
	w.stats.Timeouts++
	w.Release(id)
}

func (w *Owner) unread(i uint32) {
	e := &w.entries[i]
	if e.readers--; e.readers == 0 && !e.pinned {
		w.leased -= w.room(e)
	}
	switch {
	case e.readers > 0:
	case e.state == doomed:
		w.release(i)
	case !e.pinned:
		w.mayLeave(e)
	}
}

// leases are the readers' claims on headers.
type leases struct {
	next LeaseID
	byID map[LeaseID]uint32
}

func (l *leases) add(i uint32) LeaseID {
	if l.byID == nil {
		l.byID = make(map[LeaseID]uint32)
	}
	l.next++
	l.byID[l.next] = i
	return l.next
}

func (l *leases) end(id LeaseID) (uint32, bool) {
	i, is := l.byID[id]
	delete(l.byID, id)
	return i, is
}

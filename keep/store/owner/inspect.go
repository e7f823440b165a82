package owner

import (
	"fmt"

	"meridian/kv"
)

// Inspect describes an object, as List does, and counts as no use of it.
func (w *Owner) Inspect(now kv.Instant, key []byte) (Object, bool) {
	i, err := w.find(key)
	if err != nil {
		return Object{}, false
	}
	return w.object(now, i), true
}

// SetPinned keeps an object from being evicted, or lets it be again. It counts as no use.
// One more than may be pinned is ErrFull.
func (w *Owner) SetPinned(key []byte, pinned bool) error {
	i, err := w.find(key)
	if err != nil {
		return err
	}
	e := &w.entries[i]
	if e.pinned == pinned {
		return nil
	}
	if pinned && !w.mayPin(e.bytes) {
		return fmt.Errorf("%w: %d bytes are pinned, and no more than %d may be", ErrFull, w.pinned, w.PinnedMost())
	}
	// What is pinned is in no list, and neither evictable nor kept from it by readers.
	if pinned {
		w.order.remove(w.entries, i)
		if e.readers > 0 {
			w.leased -= w.room(e)
		} else {
			w.mayNotLeave(e)
		}
		e.pinned = true
		w.pin(e)
	} else {
		w.unpin(e)
		e.pinned = false
		if e.readers > 0 {
			w.leased += w.room(e)
		} else {
			w.mayLeave(e)
		}
		w.order.add(w.entries, i)
	}
	w.heap.SetFlags(i, w.header(i, 1).Flags)
	return nil
}

// Pinned is how many bytes of objects are kept from being evicted.
func (w *Owner) Pinned() uint64 { return w.pinned }

// PinnedMost is how many may be.
func (w *Owner) PinnedMost() uint64 {
	b := w.heap.Bounds()
	return uint64(w.options.MaxPinned * float64(b.Limit-b.Base))
}

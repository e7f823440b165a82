package owner

import (
	"meridian/keep/store/arena"
	"meridian/keep/store/extent"
	"meridian/kv"
)

// Arrived is which objects came from producers since it was last called. Each is
// found once its key is claimed and it is admitted.
func (w *Owner) Arrived() []uint64 {
	arrived := w.arrived
	w.arrived = nil
	return arrived
}

// Admit lets an object be found that came from a producer, with its sums.
func (w *Owner) Admit(hash uint64) bool {
	i, is := w.index[hash]
	if is = is && w.entries[i].state == unclaimed; is {
		w.arriving--
		w.becomeReady(i)
	}
	return is
}

// Unsummed makes an object that came without sums one that is being written: its
// bytes are all there, and the caller, who may take its time, sums and commits it.
func (w *Owner) Unsummed(hash uint64) (Plan, bool) {
	i, is := w.index[hash]
	if !is || w.entries[i].state != unsummed {
		return Plan{}, false
	}
	e, pageSize := &w.entries[i], uint32(arena.PageSize)
	if stored := w.heap.Load(i); stored.Check(w.heap.Bounds()) == nil { // its producer may have changed it
		pageSize = stored.PageSize
	}
	e.state = writing
	w.arriving--
	w.stats.Writing++
	header := w.header(i, pageSize)
	return Plan{Header: i, Epoch: e.epoch, KeyHash: hash, Offset: header.PayloadBase, Bytes: e.bytes, Pages: header.Pages, PageSize: pageSize}, true
}

// Ingest takes in what producers have announced, at most so many, and reports how
// many objects came. Whatever they wrote is judged by what the owner gave out.
func (w *Owner) Ingest(now kv.Instant, most int) (came int) {
	w.follow(now)
	for range most {
		a, ok := w.heap.Hear()
		if !ok {
			if w.stuck.since(now, w.heap.Waiting()) > w.options.WriteTimeout {
				w.heap.Skip() // its producer died between taking the place and writing it
				w.stuck = stuckRing{}
				w.stats.Reclaims++
				continue
			}
			break
		}
		w.stuck = stuckRing{}
		i, err := w.heap.HeaderAt(a.HeaderOff)
		if err == nil && w.take(now, i) {
			came++
		}
	}
	return came
}

// stuckRing follows how long the next place of the ring has been empty although
// it is taken.
type stuckRing struct {
	seen bool
	at   kv.Instant
}

func (s *stuckRing) since(now kv.Instant, waiting uint32) kv.Instant {
	if waiting == 0 {
		*s = stuckRing{}
		return 0
	}
	if !s.seen {
		*s = stuckRing{true, now}
	}
	return now - s.at
}

// mark is how far the heap and the headers were given out at a time.
type mark struct {
	at      kv.Instant
	bump    uint64
	headers uint32
}

// follow notes what producers have taken of the heap, and of the headers.
func (w *Owner) follow(now kv.Instant) {
	bump := (w.heap.Bump() - min(w.heap.Bump(), w.heap.Bounds().Base)) &^ (extent.Granule - 1)
	if bump > w.space.Grown() {
		if err := w.space.Grow(bump); err != nil {
			w.stats.Refused++
			return
		}
		w.mark(now, bump)
		w.tellUsed()
	} else if w.heap.UsedHeaders() > w.followed {
		w.mark(now, w.space.Grown())
	}
}

// mark notes that what is pending below was given out by now at the latest, and
// every header that is.
func (w *Owner) mark(now kv.Instant, bump uint64) {
	w.followed = w.heap.UsedHeaders()
	if last := len(w.grown) - 1; last >= 0 && w.grown[last].at == now {
		w.grown[last].bump, w.grown[last].headers = max(bump, w.grown[last].bump), w.followed
	} else {
		w.grown = append(w.grown, mark{now, bump, w.followed})
	}
}

// take makes an object the owner's own that a producer has written; false if it
// is not one, or not where the producer had room.
func (w *Owner) take(now kv.Instant, i uint32) bool {
	if i >= w.heap.UsedHeaders() {
		w.stats.Refused++
		return false
	}
	w.know(i)
	e := &w.entries[i]
	if w.heap.Word(i).State() != arena.Ready {
		return false // its producer may still write it
	}
	header := w.heap.Load(i)
	if header.Word.State() != arena.Ready {
		return false // changed meanwhile, which only harm does
	}
	if e.state != unknown && e.state != offered {
		return false // told twice, or the owner's own: producers have no say
	}
	if header.Check(w.heap.Bounds()) != nil {
		return w.refuse(i, &header)
	}
	w.follow(now) // after the header was READY: its room was taken before
	room, ok := w.roomOf(i, &header)
	if !ok {
		return w.refuse(i, &header)
	}
	w.offers.taken(i)
	key := w.heap.Key(&header)
	e.hash, e.bytes, e.keyLength, e.extent = arena.HashKey(key), header.Bytes, uint16(header.KeyLength), room
	e.epoch, e.priority, e.pinned = header.Word.Epoch(), arena.Priority(header.Flags), header.Flags&arena.Pinned != 0 && w.mayPin(header.Bytes)
	if _, is := w.index[e.hash]; is || e.hash != header.KeyHash {
		e.state, e.pinned = writing, false
		return w.refuse(i, &header) // another was first, or the key is not what was hashed
	}
	own := w.header(i, header.PageSize)
	own.Word, own.Checksum = header.Word, header.Checksum
	unclaimedAs := unclaimed
	if header.Flags&arena.Unchecked != 0 {
		own.Flags |= arena.Unchecked
		unclaimedAs = unsummed
	}
	w.heap.Place(i, &own)
	w.index[e.hash] = i
	e.account = w.chargeKey(now, "", key, w.room(e))
	w.pin(e)
	e.state = unclaimedAs
	w.arriving++
	w.arrived = append(w.arrived, e.hash)
	return true
}

// refuse takes header and room back from a producer that wrote what cannot be.
func (w *Owner) refuse(i uint32, header *arena.Header) bool {
	w.stats.Refused++
	w.heap.Kill(i, header.Word.Epoch())
	e := &w.entries[i]
	e.epoch = max(e.epoch, header.Word.Epoch())
	w.offers.taken(i)
	if e.extent != extent.None {
		w.space.Free(e.extent)
	}
	w.entries[i] = entry{epoch: e.epoch, extent: extent.None, state: idle}
	w.spare = append(w.spare, i)
	w.tellUsed()
	return false
}

// roomOf is the extent of an object that a producer wrote: what it was offered, or
// a part of what it took of the heap.
func (w *Owner) roomOf(i uint32, header *arena.Header) (extent.ID, bool) {
	e := &w.entries[i]
	offset, need := header.PayloadBase-w.heap.Bounds().Base, header.Extent()
	if e.state == offered {
		at, size := w.space.At(e.extent)
		return e.extent, at == offset && need.Size <= size && header.Word.Epoch() == e.epoch
	}
	id, err := w.space.Claim(offset, extent.RoundUp(need.Size, extent.Granule))
	return id, err == nil
}

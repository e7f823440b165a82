package arena

import "encoding/binary"

// Announce is a producer's word to the owner that an object is READY. It is a
// hint where to look: what is true stands in the header.
type Announce struct {
	KeyHash    uint64
	Owner      uint32
	Epoch      uint32
	HeaderOff  uint64
	PayloadOff uint64
	Pages      uint32
	PageSize   uint32
	Bytes      uint64
}

// AnnounceOf tells of an object that is sealed.
func (h *Heap) AnnounceOf(r *Reservation, owner uint32) Announce {
	o := &r.Header
	return Announce{
		KeyHash: o.KeyHash, Owner: owner, Epoch: o.Word.Epoch(), HeaderOff: h.HeaderOffset(r.Index), PayloadOff: o.PayloadBase,
		Pages: o.Pages, PageSize: o.PageSize, Bytes: o.Bytes,
	}
}

// AppendTo writes the 48 bytes.
func (a *Announce) AppendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, a.KeyHash)
	b = le.AppendUint32(b, a.Owner)
	b = le.AppendUint32(b, a.Epoch)
	b = le.AppendUint64(b, a.HeaderOff)
	b = le.AppendUint64(b, a.PayloadOff)
	b = le.AppendUint32(b, a.Pages)
	b = le.AppendUint32(b, a.PageSize)
	return le.AppendUint64(b, a.Bytes)
}

func parseAnnounce(b *[AnnounceSize]byte) Announce {
	le := binary.LittleEndian
	return Announce{
		KeyHash: le.Uint64(b[0:]), Owner: le.Uint32(b[8:]), Epoch: le.Uint32(b[12:]), HeaderOff: le.Uint64(b[16:]),
		PayloadOff: le.Uint64(b[24:]), Pages: le.Uint32(b[32:]), PageSize: le.Uint32(b[36:]), Bytes: le.Uint64(b[40:]),
	}
}

// Tell puts an announcement into the ring; false if it is full, and then the
// owner finds the object by its scan.
func (h *Heap) Tell(a *Announce) bool {
	head, tail := h.u32(ctlRingHead), h.u32(ctlRingTail)
	for {
		was := head.Load()
		// Between the two loads others may tell and the owner hear: then tail is ahead.
		if int32(was-tail.Load()) >= int32(h.ring.count) {
			return false
		}
		if !head.CompareAndSwap(was, was+1) {
			h.lost.Add(1)
			continue
		}
		at := h.place(was)
		b := a.AppendTo(make([]byte, 0, AnnounceSize))
		copy(h.b[at+8:], b[8:])
		h.u64(at).Store(a.KeyHash)
		return true
	}
}

func (h *Heap) place(n uint32) uint64 {
	return h.ring.base + AnnounceSize*uint64(n&(h.ring.count-1))
}

// Waiting is how many places of the ring are taken.
func (h *Heap) Waiting() uint32 {
	return min(h.u32(ctlRingHead).Load()-h.u32(ctlRingTail).Load(), h.ring.count)
}

// Hear takes the next announcement out of the ring; false if there is none, or
// if the next place was taken by a producer that has not written it yet: Skip
// goes past it. Only the owner hears.
func (h *Heap) Hear() (Announce, bool) {
	if h.Waiting() == 0 {
		return Announce{}, false
	}
	tail := h.u32(ctlRingTail)
	at := h.place(tail.Load())
	hash := h.u64(at).Load()
	if hash == 0 {
		return Announce{}, false
	}
	var copied [AnnounceSize]byte
	copy(copied[:], h.b[at:at+AnnounceSize])
	a := parseAnnounce(&copied)
	a.KeyHash = hash
	h.Skip()
	return a, true
}

// Skip goes past the next place: its producer died before it wrote, or has been
// heard.
func (h *Heap) Skip() {
	tail := h.u32(ctlRingTail)
	h.u64(h.place(tail.Load())).Store(0)
	tail.Add(1)
}

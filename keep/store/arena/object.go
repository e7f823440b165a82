package arena

import (
	"bytes"
	"errors"

	"github.com/zeebo/xxh3"
)

// HashKey is the hash of a key; never 0, which means none.
func HashKey(key []byte) uint64 { return max(1, xxh3.Hash(key)) }

// What a reader finds wrong. Each means a miss.
var (
	// ErrGone means that the object is not there any more, or not yet.
	ErrGone = errors.New("arena: the object is not ready, or another took its place")
	// ErrForeign means that another key has the same hash.
	ErrForeign = errors.New("arena: the object has another key")
	// ErrTorn means that bytes and sums do not agree.
	ErrTorn = errors.New("arena: the object's checksum does not match its bytes")
)

// Payload is where the producer of a reservation writes.
func (h *Heap) Payload(r *Reservation) []byte {
	at := r.Header.PayloadBase
	return h.b[at : at+r.Header.Bytes : at+r.Header.Bytes]
}

// Write copies a payload and what stands behind it into a reservation, and makes
// the object READY. It reports false if the owner has taken the room back meanwhile.
func (h *Heap) Write(r *Reservation, key, payload []byte) bool {
	return h.finish(r, key, h.CopyIn(r.Header.PayloadBase, payload[:r.Header.Bytes]))
}

// Seal is Write for a payload that its producer has put where it belongs.
func (h *Heap) Seal(r *Reservation, key []byte) bool {
	return h.finish(r, key, h.SumPayload(r.Header.PayloadBase, r.Header.Bytes))
}

func (h *Heap) finish(r *Reservation, key []byte, sum uint64) bool {
	h.PutKey(&r.Header, key)
	h.u64(h.HeaderOffset(r.Index) + hdrChecksum).Store(sum)
	ready := MakeWord(Ready, r.Header.Word.Epoch())
	if !h.Swap(r.Index, r.Header.Word, ready) {
		return false
	}
	r.Header.Checksum, r.Header.Word = sum, ready
	return true
}

// PutKey writes the key of an object that is to be written; the header must be the
// writer's own.
func (h *Heap) PutKey(header *Header, key []byte) { copy(h.keyOf(header), key) }

// Key copies the key of an object out; the header must have been checked.
func (h *Heap) Key(header *Header) []byte { return bytes.Clone(h.keyOf(header)) }

func (h *Heap) keyOf(header *Header) []byte {
	e := header.Extent()
	return h.b[header.PayloadBase+e.Key:][:header.KeyLength]
}

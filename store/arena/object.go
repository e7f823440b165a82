package arena

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

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

// Seal writes what stands behind a payload that is complete, and makes the object
// READY. It reports false if the owner has taken the room back meanwhile.
func (h *Heap) Seal(r *Reservation, key []byte) bool {
	header, e := &r.Header, r.Header.Extent()
	header.Checksum = h.SumPayload(header.PayloadBase, header.Bytes)
	copy(h.b[header.PayloadBase:][e.Key:e.Size], key)
	at := h.HeaderOffset(r.Index)
	binary.LittleEndian.PutUint64(h.b[at+hdrChecksum:], header.Checksum)
	ready := MakeWord(Ready, header.Word.Epoch())
	if !h.Swap(r.Index, header.Word, ready) {
		return false
	}
	header.Word = ready
	return true
}

// Sum writes the sums of an object whose writer did not, and clears Unchecked.
// Only the owner does, before it tells anybody of the object.
func (h *Heap) Sum(i uint32, header *Header) {
	header.Checksum = h.SumPayload(header.PayloadBase, header.Bytes)
	header.Flags &^= Unchecked
	at := h.HeaderOffset(i)
	h.u64(at + hdrChecksum).Store(header.Checksum)
	h.u32(at + hdrFlags).Store(header.Flags)
}

// PutKey writes the key of an object that is to be written; the header must be the
// owner's own.
func (h *Heap) PutKey(header *Header, key []byte) {
	e := header.Extent()
	copy(h.b[header.PayloadBase+e.Key:][:header.KeyLength], key)
}

// Key copies the key of an object out; the header must have been checked.
func (h *Heap) Key(header *Header) []byte {
	e := header.Extent()
	return bytes.Clone(h.b[header.PayloadBase+e.Key:][:header.KeyLength])
}

// Read copies the object of a header into dst, which has its length, and checks
// it: key, epoch and state before and after the copy, and every sum.
func (h *Heap) Read(i uint32, key, dst []byte) error {
	header := h.Load(i)
	if header.Word.State() != Ready || header.Flags&Unchecked != 0 {
		return fmt.Errorf("%w: %v, flags %#x", ErrGone, header.Word, header.Flags)
	}
	if err := header.Check(h.bounds); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if header.Bytes != uint64(len(dst)) {
		return fmt.Errorf("%w: %d bytes for a buffer of %d", ErrGone, header.Bytes, len(dst))
	}
	e := header.Extent()
	extent := h.b[header.PayloadBase:][:e.Size]
	if header.KeyHash != HashKey(key) || !bytes.Equal(extent[e.Key:e.Key+uint64(header.KeyLength)], key) {
		return h.unlessGone(i, header.Word, ErrForeign)
	}
	return h.unlessGone(i, header.Word, h.CopyOut(dst, header.PayloadBase, header.Checksum))
}

// unlessGone is err, unless the header's word has changed meanwhile: then all
// that was seen says nothing.
func (h *Heap) unlessGone(i uint32, was Word, err error) error {
	if now := h.Word(i); now != was {
		return fmt.Errorf("%w: it was %v and is %v", ErrGone, was, now)
	}
	return err
}

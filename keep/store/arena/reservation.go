package arena

import (
	"errors"
	"fmt"
)

// ErrFull means that a producer finds no room and must ask the owner.
var ErrFull = errors.New("arena: no room that could be taken without the owner")

// Reservation is room for an object that its producer writes.
type Reservation struct {
	Index  uint32
	Header Header
}

// Reserve takes room for an object without asking the owner: from a free list of
// its class or the next, else from what was never given out.
func (h *Heap) Reserve(keyHash, bytes uint64, keyLength int, pageSize uint32) (Reservation, error) {
	header := Header{
		KeyHash: keyHash, PageSize: pageSize, Bytes: bytes, KeyLength: uint32(keyLength),
	}
	if bytes > 0 && pageSize > 0 {
		header.Pages = uint32((bytes-1)/uint64(pageSize) + 1)
	}
	probe := header
	probe.PayloadBase = h.bounds.Base
	if err := probe.Check(h.bounds); err != nil {
		return Reservation{}, err
	}
	if h.u32(ctlUsed).Load() > h.u32(ctlWaterHigh).Load() {
		return Reservation{}, fmt.Errorf("%w: above its watermark", ErrFull)
	}
	i, word, payload, ok := h.takeRoom(header.Extent())
	if !ok {
		return Reservation{}, ErrFull
	}
	header.PayloadBase, header.Word = payload, MakeWord(Writing, word.Epoch())
	h.store(i, &header)
	if word.State() != Reserved || !h.Swap(i, word, header.Word) {
		return Reservation{}, fmt.Errorf("%w: header %d is %v", ErrFull, i, h.Word(i))
	}
	return Reservation{Index: i, Header: header}, nil
}

func (h *Heap) takeRoom(need Extent) (i uint32, word Word, payload uint64, ok bool) {
	for class := ClassOf(need.Size); class >= 0 && class < Classes; class++ {
		i, listed, ok := h.takeOffer(class)
		if !ok {
			continue
		}
		// What the list says any producer may have written.
		if listed.Bytes >= need.Size && listed.PayloadBase%need.Align == 0 && listed.PayloadBase >= h.bounds.Base &&
			listed.PayloadBase <= h.bounds.Limit && need.Size <= h.bounds.Limit-listed.PayloadBase {
			return i, listed.Word, listed.PayloadBase, true
		}
	}
	if h.UsedHeaders() >= h.headers.count {
		return 0, 0, 0, false
	}
	if payload, ok = h.TakeBump(need.Size, need.Align); !ok {
		return 0, 0, 0, false
	}
	i, ok = h.TakeHeader() // without one the bytes are pending until the owner's scan
	return i, h.Word(i), payload, ok
}

package arena

import (
	"bytes"
	"fmt"
	"sync/atomic"
)

// Wanted is an object as a reader was told of it.
type Wanted struct {
	Index, Epoch uint32 // of the header
	Key          []byte
}

// Read copies the payload of an object into dst, or as much of it as dst has
// bytes, from a multiple of Segment on. It asks no owner and checks what it finds:
// key, epoch and state before and after the copy, and every sum. It writes nothing,
// so that an arena that is mapped for reading will do.
func (h *Heap) Read(w Wanted, dst []byte, from uint64) error {
	if w.Index >= h.headers.count {
		return fmt.Errorf("%w: header %d of %d", ErrGone, w.Index, h.headers.count)
	}
	header := h.Load(w.Index)
	if header.Word != MakeWord(Ready, w.Epoch) || header.Flags&Unchecked != 0 {
		return fmt.Errorf("%w: epoch %d was expected, it is %v with flags %#x", ErrGone, w.Epoch, header.Word, header.Flags)
	}
	if err := header.Check(h.bounds); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if header.KeyHash != HashKey(w.Key) || !bytes.Equal(h.keyOf(&header), w.Key) {
		return h.unlessGone(w, ErrForeign)
	}
	if from == 0 && uint64(len(dst)) == header.Bytes {
		return h.unlessGone(w, h.CopyOut(dst, header.PayloadBase, header.Checksum))
	}
	return h.unlessGone(w, h.CopySlice(dst, &header, from))
}

// unlessGone is err, unless the header's word has changed meanwhile: then all
// that was seen says nothing.
func (h *Heap) unlessGone(w Wanted, err error) error {
	// The word is loaded after all that was copied. An atomic load keeps only
	// what follows it in its place, a swap also what came before.
	var fence atomic.Uint32
	fence.Swap(1)
	if now := h.Word(w.Index); now != MakeWord(Ready, w.Epoch) {
		return fmt.Errorf("%w: it was ready in epoch %d and is %v", ErrGone, w.Epoch, now)
	}
	return err
}

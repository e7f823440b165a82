// Package budget bounds the memory that others fill: clients with bodies, engines with answers.
package budget

import (
	"errors"
	"io"
	"sync/atomic"
)

// Budget is how many bytes may be held at a time.
type Budget struct {
	Limit int64
	used  atomic.Int64
}

// Used is how many bytes are held.
func (b *Budget) Used() int64 { return b.used.Load() }

// Hold counts bytes, and is false where there is no room for them.
func (b *Budget) Hold(bytes int64) bool {
	if b.used.Add(bytes) > b.Limit {
		b.used.Add(-bytes)
		return false
	}
	return true
}

// Release gives back what was held.
func (b *Budget) Release(bytes int64) { b.used.Add(-bytes) }

// ErrSpent: the budget is spent.
var ErrSpent = errors.New("no memory is left for it")

// Held are bytes that a client or an engine sends, counted until Release.
type Held struct {
	Data   []byte
	Budget *Budget
	held   int64
}

// Size is how many bytes are counted for it.
func (h *Held) Size() int64 { return h.held }

// Release gives back what was held, and its data with it.
func (h *Held) Release() {
	h.Budget.Release(h.held)
	h.Data, h.held = nil, 0
}

// Grow makes room for so many bytes in all.
func (h *Held) Grow(size int64) error {
	if !h.Budget.Hold(size - h.held) {
		return ErrSpent
	}
	h.held = size
	h.Data = append(make([]byte, 0, size), h.Data...)
	return nil
}

// firstBytes is how much of a sender's word about its length is believed before
// it comes true.
const firstBytes = 64 << 10

// Fill reads to the end of r, which has no more than most bytes; said is what
// the sender says of its length, negative for nothing.
func (h *Held) Fill(r io.Reader, said, most int64) error {
	size := int64(4 << 10)
	if said >= 0 {
		size = min(said, firstBytes) + 1
	}
	if err := h.Grow(min(size, most+1)); err != nil {
		return err
	}
	for {
		n, err := r.Read(h.Data[len(h.Data):cap(h.Data)])
		h.Data = h.Data[:len(h.Data)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(h.Data) == cap(h.Data) {
			if err := h.Grow(min(2*int64(cap(h.Data)), most+1)); err != nil {
				return err
			}
		}
	}
}

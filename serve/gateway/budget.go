package gateway

import (
	"errors"
	"io"
	"sync/atomic"
)

// budget bounds memory that is filled by others: clients' bodies, engines'
// answers.
type budget struct {
	limit int64
	used  atomic.Int64
}

func (b *budget) hold(bytes int64) bool {
	if b.used.Add(bytes) > b.limit {
		b.used.Add(-bytes)
		return false
	}
	return true
}

func (b *budget) release(bytes int64) { b.used.Add(-bytes) }

// errNoMemory: the budget is spent.
var errNoMemory = errors.New("no memory is left for it")

// heldBytes are bytes that a client or an engine sends, counted until release.
type heldBytes struct {
	data   []byte
	budget *budget
	held   int64
}

func (h *heldBytes) release() {
	h.budget.release(h.held)
	h.data, h.held = nil, 0
}

func (h *heldBytes) grow(size int64) error {
	if !h.budget.hold(size - h.held) {
		return errNoMemory
	}
	h.held = size
	h.data = append(make([]byte, 0, size), h.data...)
	return nil
}

// firstBytes is how much of a sender's word about its length is believed before
// it comes true.
const firstBytes = 64 << 10

// readFrom reads to the end of r, which has no more than most bytes; said is what
// the sender says of its length, negative for nothing.
func (h *heldBytes) readFrom(r io.Reader, said, most int64) error {
	size := int64(4 << 10)
	if said >= 0 {
		size = min(said, firstBytes) + 1
	}
	if err := h.grow(min(size, most+1)); err != nil {
		return err
	}
	for {
		n, err := r.Read(h.data[len(h.data):cap(h.data)])
		h.data = h.data[:len(h.data)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(h.data) == cap(h.data) {
			if err := h.grow(min(2*int64(cap(h.data)), most+1)); err != nil {
				return err
			}
		}
	}
}

package arena

import (
	"encoding/binary"
	"fmt"
)

// State is where an object stands.
type State uint32

const (
	Reserved State = iota
	Writing
	Ready
	Dead
)

var stateNames = [...]string{"reserved", "writing", "ready", "dead"}

func (s State) String() string {
	if int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", uint32(s))
	}
	return stateNames[s]
}

// Word is state and epoch of a header: what is compared and swapped.
type Word uint64

// MakeWord puts a word together.
func MakeWord(s State, epoch uint32) Word { return Word(uint64(epoch)<<32 | uint64(s)) }

// State is the lower half.
func (w Word) State() State { return State(uint32(w)) }

// Epoch is the upper half.
func (w Word) Epoch() uint32 { return uint32(w >> 32) }

func (w Word) String() string { return fmt.Sprintf("%v in epoch %d", w.State(), w.Epoch()) }

// Flags of a header.
const (
	// Pinned objects are not evicted.
	Pinned uint32 = 1 << 0
	// Unchecked objects have no sums yet: a device wrote them.
	Unchecked uint32 = 1 << 1

	priorityShift = 8
)

// Priority is an object's, 0 to 255: the lowest is evicted first where the
// owner's policy goes by it.
func Priority(flags uint32) uint8 { return uint8(flags >> priorityShift) }

// WithPriority sets it.
func WithPriority(flags uint32, p uint8) uint32 {
	return flags&^(0xff<<priorityShift) | uint32(p)<<priorityShift
}

// Header is an ObjHeader that was copied out of an arena.
type Header struct {
	KeyHash     uint64
	Pages       uint32
	PageSize    uint32
	PayloadBase uint64
	Bytes       uint64
	Word        Word
	LastAccess  uint64
	Flags       uint32
	KeyLength   uint32
	Checksum    uint64
}

// MaxKey is the longest key.
const MaxKey = 1024

// AppendTo writes the 64 bytes.
func (h *Header) AppendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, h.KeyHash)
	b = le.AppendUint32(b, h.Pages)
	b = le.AppendUint32(b, h.PageSize)
	b = le.AppendUint64(b, h.PayloadBase)
	b = le.AppendUint64(b, h.Bytes)
	b = le.AppendUint64(b, uint64(h.Word))
	b = le.AppendUint64(b, h.LastAccess)
	b = le.AppendUint32(b, h.Flags)
	b = le.AppendUint32(b, h.KeyLength)
	return le.AppendUint64(b, h.Checksum)
}

// ParseHeader reads them. Whether they make sense Check says.
func ParseHeader(b *[HeaderSize]byte) Header {
	le := binary.LittleEndian
	return Header{
		KeyHash: le.Uint64(b[hdrKeyHash:]), Pages: le.Uint32(b[hdrPages:]), PageSize: le.Uint32(b[hdrPageSize:]),
		PayloadBase: le.Uint64(b[hdrPayload:]), Bytes: le.Uint64(b[hdrBytes:]), Word: Word(le.Uint64(b[hdrWord:])),
		LastAccess: le.Uint64(b[hdrAccess:]), Flags: le.Uint32(b[hdrFlags:]), KeyLength: le.Uint32(b[hdrKeyLength:]),
		Checksum: le.Uint64(b[hdrChecksum:]),
	}
}

// Extent is where the object's parts lie, from PayloadBase.
func (h *Header) Extent() Extent { return ExtentOf(h.Bytes, int(h.KeyLength)) }

// Check demands that the object lies within a heap, and that its numbers agree.
func (h *Header) Check(heap Bounds) error {
	if h.Bytes == 0 || h.Bytes > heap.Limit || h.KeyLength == 0 || h.KeyLength > MaxKey {
		return fmt.Errorf("arena: an object of %d bytes with a key of %d: payloads have 1 to %d bytes, keys 1 to %d", h.Bytes, h.KeyLength, heap.Limit, MaxKey)
	}
	if h.PageSize == 0 || uint64(h.Pages) != (h.Bytes-1)/uint64(h.PageSize)+1 {
		return fmt.Errorf("arena: %d pages of %d bytes for %d", h.Pages, h.PageSize, h.Bytes)
	}
	e := h.Extent()
	if h.PayloadBase%e.Align != 0 || h.PayloadBase < heap.Base || h.PayloadBase > heap.Limit || e.Size > heap.Limit-h.PayloadBase {
		return fmt.Errorf("arena: an extent of %d bytes at %d, aligned to %d, in a heap from %d to %d", e.Size, h.PayloadBase, e.Align, heap.Base, heap.Limit)
	}
	return nil
}

// Bounds is where extents may lie.
type Bounds struct{ Base, Limit uint64 }

package arena

import (
	"bytes"
	"fmt"
	"slices"

	"meridian/move/checksum"
)

// Copies into and out of extents take sums in the same pass. Offsets and lengths
// are the caller's own, or were checked (Header.Check).

// CopyIn copies a payload to where its extent begins, writes its sums behind it,
// and returns its checksum.
func (h *Heap) CopyIn(offset uint64, payload []byte) uint64 {
	dst, sums := h.parts(offset, uint64(len(payload)))
	return checksum.OfSums(checksum.AppendCopy(sums[:0], dst, payload))
}

// SumPayload writes the sums of a payload that lies in its extent already, and
// returns its checksum.
func (h *Heap) SumPayload(offset, size uint64) uint64 {
	payload, sums := h.parts(offset, size)
	return checksum.OfSums(checksum.AppendSums(sums[:0], payload))
}

// PutSums is SumPayload with the sums that were taken as the payload was placed.
func (h *Heap) PutSums(offset, size uint64, sums []byte) uint64 {
	_, dst := h.parts(offset, size)
	copy(dst, sums)
	return checksum.OfSums(sums)
}

// Sums are those behind a payload, copied; ErrTorn if they are not those of its
// checksum.
func (h *Heap) Sums(offset, size, want uint64) ([]byte, error) {
	_, stored := h.parts(offset, size)
	sums := bytes.Clone(stored)
	if checksum.OfSums(sums) != want {
		return nil, fmt.Errorf("%w: the sums themselves", ErrTorn)
	}
	return sums, nil
}

// CopyOut copies a whole payload out; dst has its length. ErrTorn if what was
// copied has another checksum.
func (h *Heap) CopyOut(dst []byte, offset, want uint64) error {
	payload, stored := h.parts(offset, uint64(len(dst)))
	var few [8 * 256]byte
	sums := checksum.AppendCopy(slices.Grow(few[:0], len(stored)), dst, payload)
	if checksum.OfSums(sums) == want {
		return nil
	}
	return torn(0, sums, stored)
}

// Check sums a payload where it lies; ErrTorn if it has another checksum.
func (h *Heap) Check(offset, size, want uint64) error {
	payload, stored := h.parts(offset, size)
	var few [8 * 256]byte
	sums := checksum.AppendSums(slices.Grow(few[:0], len(stored)), payload)
	if checksum.OfSums(sums) == want {
		return nil
	}
	return torn(0, sums, stored)
}

// CopySlice copies a part of an object's payload out, from a multiple of Segment
// on, and checks it by the sums of its segments. The part ends with a segment or
// with the payload.
func (h *Heap) CopySlice(dst []byte, header *Header, from uint64) error {
	size := uint64(len(dst))
	if from%Segment != 0 || from > header.Bytes || size > header.Bytes-from || size%Segment != 0 && from+size != header.Bytes {
		return fmt.Errorf("arena: %d bytes from %d on of an object of %d: a slice is made of whole segments of %d", size, from, header.Bytes, Segment)
	}
	payload, _ := h.parts(header.PayloadBase, header.Bytes)
	stored, err := h.Sums(header.PayloadBase, header.Bytes, header.Checksum)
	if err != nil {
		return err
	}
	stored = stored[8*(from/Segment):][:8*Segments(size)]
	var few [8 * 256]byte
	sums := checksum.AppendCopy(slices.Grow(few[:0], len(stored)), dst, payload[from:from+size])
	if bytes.Equal(sums, stored) {
		return nil
	}
	return torn(from/Segment, sums, stored)
}

// parts are the payload of an extent and the sums behind it.
func (h *Heap) parts(offset, size uint64) (payload, sums []byte) {
	e := ExtentOf(size, 0)
	extent := h.b[offset:][:e.Key]
	return extent[:size:size], extent[e.Sums:e.Key:e.Key]
}

// torn says which segment differs, of those from a first one on.
func torn(first uint64, sums, stored []byte) error {
	for n := uint64(0); n < uint64(len(sums)/8); n++ {
		if !bytes.Equal(sums[8*n:8*n+8], stored[8*n:8*n+8]) {
			return fmt.Errorf("%w: segment %d", ErrTorn, first+n)
		}
	}
	return fmt.Errorf("%w: the sums themselves", ErrTorn)
}

package kvevents

import (
	"encoding/binary"
	"hash/maphash"
)

// order follows the numbers of batches. It is a machine without I/O: it is told
// what came and says what that means.
type order struct {
	known bool   // at least one batch was taken
	next  uint64 // the number that comes next
	last  uint64 // the mark of the batch before it
}

type verdict uint8

const (
	inOrder verdict = iota
	seenBefore
	gap // something between was not seen
)

// judge says what a batch's number means on a connection that has begun.
func (o *order) judge(sequence uint64) verdict {
	switch {
	case !o.known || sequence == o.next:
		return inOrder
	case sequence < o.next:
		return seenBefore
	}
	return gap
}

// took: the batch is part of what is known.
func (o *order) took(sequence uint64, payload []byte) {
	o.known, o.next, o.last = true, sequence+1, mark(payload)
}

// since is what to ask a replay for: the last batch that is known, as well, to
// see by it whether the publisher is the one it was.
func (o *order) since() uint64 {
	if !o.known {
		return 0
	}
	return o.next - 1
}

// continues tells whether the first batch of a replay shows the same publisher,
// with nothing missing.
func (o *order) continues(sequence uint64, payload []byte) bool {
	return o.known && sequence == o.next-1 && mark(payload) == o.last
}

// A publisher counts from nothing in every life. Payloads have the time in
// them, so that two lives do not say the same under one number.
var seed = maphash.MakeSeed()

func mark(payload []byte) uint64 { return maphash.Bytes(seed, payload) }

// endOfReplay is the number that ends a replay.
const endOfReplay = ^uint64(0)

// numbered reads the last two frames of a message: a batch's number and the
// batch. Topics before them, where there are any, are of no interest.
func numbered(frames [][]byte) (sequence uint64, payload []byte, ok bool) {
	n := len(frames)
	if n < 2 || len(frames[n-2]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], true
}

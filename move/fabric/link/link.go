// Package link is the two ends of a link, over streams that a fabric or the
// simulation runs: Poster at the side that posts transfers, Server at the side
// that serves them. They feed the machines of move/fabric/session with what the streams report,
// and the streams with what the machines answer:
//
//	Post ─► Poster ─► Stream ═══ frames, parts ═══ Stream ─► Server ─► Regions, Guard
//	          │                                                │
//	    session.Poster                                   session.Server
//
// A stream carries parts in one of two ways. In move/fabric/tcp their bytes travel,
// over a TCP connection; in move/fabric/host they do not, because the other end copies
// them out of memory that it was lent: that is Lending, which is here because the
// simulation drives it as well as the other. What is here starts no goroutine
// and never waits, but for Notify, which waits for its caller, and for Redial,
// which dials. An event is handled to its end on the goroutine that brought it,
// under the end's lock.
//
// Lock order: Redial mu alone; Poster or Server mu, then whatever locks a stream has.
package link

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// Stream is one ordered channel of a link. Its methods never wait for the peer.
type Stream interface {
	// Send queues frames, which are the caller's again when it returns.
	Send(frames []byte)
	// Post queues a part, and says how far it has come. The caller holds the
	// end's lock, so that no caller can ask for quiet meanwhile.
	Post(p *Outbound) (Progress, error)
	// Expect makes the stream ready for the bytes of a part. Bytes that no part
	// expects are thrown away: the peer may not know yet that they are unwanted.
	// An error means that the part's handle is in use, and that the stream has
	// not taken the part.
	Expect(p *Inbound) error
	// Quiet stops every part that match selects, in both directions. When it
	// returns the stream does not touch their memory any more.
	Quiet(match func(Part) bool)
	// Close breaks the stream.
	Close()
}

// Progress is how far a part has come when Post returns.
type Progress uint8

// The stages.
const (
	// Queued: the end hears of the part through Leaving and Left.
	Queued Progress = iota
	// Begun: bytes of it may have left; the end hears of it through Left.
	Begun
	// Sent: its bytes have left, and its memory is not needed any more.
	Sent
)

// End is what a stream reports to. Calls come without any lock of the stream.
type End interface {
	// Frame handles everything but bytes; body is valid during the call. An
	// error means that the peer cannot be trusted to speak the protocol.
	Frame(s Stream, f mrdn.LinkFrame, body []byte) error
	// Arrived: every byte of a part was placed and verified, or err.
	Arrived(p *Inbound, err error)
	// Unreached: the bytes of a part cannot be reached, and none was placed.
	Unreached(p *Inbound, err error)
	// Leaving: the first bytes of a part are about to go; false drops it.
	Leaving(p *Outbound) bool
	// Left: every byte of a part has been handed on, or err.
	Left(p *Outbound, err error)
	// Lost: the stream is broken, and so the link.
	Lost(err error)
}

// Part says which part of which transfer, under which grant, in whose memory.
type Part struct {
	ID    kv.ID
	Index uint16
	Grant kv.ID
	Bound *fabric.Bound
}

// Outbound is a part whose bytes leave.
type Outbound struct {
	Part
	Handle uint32
	Begin  []byte // frame to send before the first bytes
	// Source is the list of the part's memory as it is sent, where it is lent; at
	// the serving end there is none, because the peer has named it.
	Source []byte
	Walk   fabric.Walk
	Sums   *fabric.Sums // of its memory, where they are known; else nil
	owned  atomic.Bool
}

// Release gives the part's memory back if the part holds it. It may be called
// from both sides of a race; only the first call counts.
func (p *Outbound) Release() {
	if p.owned.Swap(false) {
		p.Bound.Release()
	}
}

// Inbound is a part whose bytes arrive.
type Inbound struct {
	Part
	Handle uint32
	Walk   fabric.Walk
	Sums   *fabric.Sums // to be noted, of what is placed; nil for none
	// From is where a read finds its bytes in the peer's memory.
	From fabric.List
	// Discard: the bytes go on arriving, because the peer does not know yet,
	// and are thrown away. The stream owns it once it expects the part.
	Discard bool
	owned   atomic.Bool
}

// Verify compares what a chunk's sender and receiver made of its bytes; length
// is the chunk's, whose bytes the part's walk has passed.
func (p *Inbound) Verify(sent, received uint64, length uint32) error {
	if sent == received {
		return nil
	}
	return fmt.Errorf("%w: part %d of transfer %s, %d bytes before its end", fabric.ErrChecksum, p.Index, p.ID, p.Walk.Left()+uint64(length))
}

// Release gives the part's memory back if the part holds it.
func (p *Inbound) Release() {
	if p.owned.Swap(false) {
		p.Bound.Release()
	}
}

// inOrder lists a map's ids in their order: what happens to several transfers
// at once must not depend on the order of a map, or a simulation would not
// repeat.
func inOrder[T any](m map[kv.ID]T) []kv.ID {
	return slices.SortedFunc(maps.Keys(m), kv.ID.Compare)
}

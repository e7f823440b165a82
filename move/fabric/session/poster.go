// Package session is the conversation between the two ends of a link, as two
// state machines without I/O: Poster at the side that posts transfers,
// Server at the side that serves them. A shell (move/fabric/tcp, a simulator)
// feeds them what happened and carries out what they answer. They have no
// clock, no goroutine and no lock; the shell calls them one event at a time.
//
//	posting side                         serving side
//	Post ───────── Begin, Chunk… ──────► Begin: admit, place
//	Ended ◄──────────── Ack ──────────── Placed: all bytes verified
//	Stop ────────── Cancel ────────────► stop placing, forget
//
// Bulk bytes never enter: what they prove (submitted, placed, arrived) does.
package session

import (
	"fmt"
	"maps"
	"slices"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mrdn"
)

// Kind is what an effect asks the shell to do.
type Kind uint8

// The effects.
const (
	// SendCancel tells the peer to forget the transfer.
	SendCancel Kind = iota + 1
	// SendNotice sends the notification that follows a read.
	SendNotice
	// SendAck answers a part or a notice.
	SendAck
	// Quiet demands that the shell stops touching local memory for the
	// transfer: drops parts that wait, diverts those in flight. It is done when
	// the call that returned the effect has carried it out.
	Quiet
	// Ended reports the end of a transfer to its poster.
	Ended
	// Deliver hands a notification to the agent.
	Deliver
	// Progress reports a stage that was reached.
	Progress
)

// Effect is one thing the shell must do, in order.
type Effect struct {
	Kind  Kind
	ID    kv.ID
	Part  uint16
	State fabric.State
	Err   error
	// Untouched goes with a SendAck that refuses: no byte was placed or given.
	Untouched bool
	// Payload is the notification to deliver.
	Payload []byte
}

// Poster is the posting side's half of a link.
type Poster struct {
	limit int
	ops   map[kv.ID]*postedTransfer
}

// postedTransfer is one transfer that was posted here.
type postedTransfer struct {
	op        fabric.Op
	parts     uint16
	submitted uint16 // parts whose bytes or request have left
	ended     uint16 // parts that are in place
	acked     []bool // which of them the peer has said so of
	begun     bool   // something left this side
	notice    bool   // a read that is followed by a notification
	noticed   bool   // …which was sent
}

// NewPoster admits at most limit transfers at a time.
func NewPoster(limit int) *Poster {
	return &Poster{limit: limit, ops: make(map[kv.ID]*postedTransfer)}
}

// Len is how many transfers are running.
func (s *Poster) Len() int { return len(s.ops) }

// Running reports whether a transfer is.
func (s *Poster) Running(id kv.ID) bool { return s.ops[id] != nil }

// Post admits a transfer of so many parts, or refuses it by name.
func (s *Poster) Post(id kv.ID, op fabric.Op, parts uint16, notice bool) error {
	if s.ops[id] != nil {
		return fmt.Errorf("fabric: transfer %s is running already", id)
	}
	if len(s.ops) >= s.limit {
		return fmt.Errorf("%w: %d transfers are running on this link", fabric.ErrBusy, s.limit)
	}
	s.ops[id] = &postedTransfer{op: op, parts: parts, notice: notice}
	return nil
}

// Leaving: the first byte of a part is about to leave. It returns false when
// the transfer has ended and the part must not leave.
func (s *Poster) Leaving(id kv.ID) ([]Effect, bool) {
	o := s.ops[id]
	if o == nil {
		return nil, false
	}
	if o.begun {
		return nil, true
	}
	o.begun = true
	return []Effect{{Kind: Progress, ID: id, State: fabric.Submitting}}, true
}

// Left: the last byte of a part has left, or the request for it.
func (s *Poster) Left(id kv.ID) []Effect {
	o := s.ops[id]
	if o == nil {
		return nil
	}
	if o.submitted++; o.submitted == o.parts {
		return []Effect{{Kind: Progress, ID: id, State: fabric.Submitted}}
	}
	return nil
}

// Arrived: every byte of a part of a read is in place and verified.
func (s *Poster) Arrived(id kv.ID) []Effect {
	if o := s.ops[id]; o != nil && o.op == fabric.Read {
		return s.partEnded(id, o)
	}
	return nil
}

// Acked: the peer answered a part, or the notice.
func (s *Poster) Acked(a mrdn.Ack) []Effect {
	o := s.ops[a.ID]
	if o == nil {
		return nil // late: the transfer has ended here
	}
	if a.Code != mrdn.OK {
		if a.Untouched && o.parts == 1 {
			o.begun = false // the peer says that nothing happened there
		}
		return s.fail(a.ID, fabric.FromCode(a.Code, a.Message), true)
	}
	switch {
	case a.Part == mrdn.NoticeAck && o.noticed:
		return s.end(a.ID, fabric.Done, nil)
	case a.Part < o.parts && o.op == fabric.Write:
		return s.partAcked(a.ID, o, a.Part)
	}
	return s.fail(a.ID, fmt.Errorf("%w: it answered part %d of %d out of turn", fabric.ErrRefused, a.Part, o.parts), true)
}

// partAcked counts a part once, however often the peer says it. A peer that has
// done the transfer before answers while bytes still leave: the caller's memory
// must be quiet when it hears of the end.
func (s *Poster) partAcked(id kv.ID, o *postedTransfer, part uint16) []Effect {
	if o.acked == nil {
		o.acked = make([]bool, o.parts)
	}
	if o.acked[part] {
		return nil
	}
	o.acked[part] = true
	effects := s.partEnded(id, o)
	if o.submitted < o.parts && !s.Running(id) {
		return append([]Effect{{Kind: Quiet, ID: id}}, effects...)
	}
	return effects
}

func (s *Poster) partEnded(id kv.ID, o *postedTransfer) []Effect {
	if o.ended++; o.ended < o.parts {
		return nil
	}
	if o.notice && !o.noticed {
		o.noticed = true
		return []Effect{{Kind: SendNotice, ID: id}}
	}
	return s.end(id, fabric.Done, nil)
}

// Unreached: the bytes of a part of a read cannot be reached from here, and none
// of it is in place.
func (s *Poster) Unreached(id kv.ID, err error) []Effect {
	if o := s.ops[id]; o != nil && o.parts == 1 {
		o.begun = false // nothing happened, here or there
	}
	return s.fail(id, err, true)
}

// Failed: local memory or the stream could not do its part.
func (s *Poster) Failed(id kv.ID, err error) []Effect { return s.fail(id, err, true) }

// Stop: the caller cancels, or the deadline has passed.
func (s *Poster) Stop(id kv.ID, cause error) []Effect {
	return s.fail(id, cause, true)
}

// Lost: the link is gone. Everything ends; what had begun is in doubt.
func (s *Poster) Lost(err error) []Effect {
	var effects []Effect
	for _, id := range slices.SortedFunc(maps.Keys(s.ops), kv.ID.Compare) {
		effects = append(effects, s.fail(id, fmt.Errorf("%w: %w", fabric.ErrPeerGone, err), false)...)
	}
	return effects
}

func (s *Poster) fail(id kv.ID, err error, tellPeer bool) []Effect {
	o := s.ops[id]
	if o == nil {
		return nil
	}
	effects := []Effect{{Kind: Quiet, ID: id}}
	if !o.begun {
		return append(effects, s.end(id, fabric.NotSubmitted, err)...)
	}
	if tellPeer {
		effects = append(effects, Effect{Kind: SendCancel, ID: id})
	}
	return append(effects, s.end(id, fabric.InDoubt, err)...)
}

func (s *Poster) end(id kv.ID, state fabric.State, err error) []Effect {
	delete(s.ops, id)
	return []Effect{{Kind: Ended, ID: id, State: state, Err: err}}
}

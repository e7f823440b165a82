package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// beginDelivery takes an object to its reader. To a reader in this process it is
// copied at once, by the goroutine that asked for it. mu is held.
func (s *Store) beginDelivery(e protocol.Deliver) (do func()) {
	if e.To == s.self {
		return func() { s.delivered(e, s.deliverHere(e)) }
	}
	if !e.Inline {
		return s.background(func() { s.delivered(e, s.deliverLanding(e)) })
	}
	if !s.outbox.begin(e.To, e.Location.Bytes) {
		overloaded := fmt.Errorf("%w: %s has not taken what it asked %s for; try again", owner.ErrOverloaded, e.To.Name, s.self.Name)
		return func() { s.delivered(e, overloaded) }
	}
	if e.Location.Bytes <= sealedAtOnce {
		return func() { s.delivered(e, s.deliverInline(e)) }
	}
	return s.background(func() { s.delivered(e, s.deliverInline(e)) })
}

func (s *Store) delivered(e protocol.Deliver, err error) {
	s.step(func(now, _ kv.Instant) []protocol.Effect { return s.server.Delivered(now, e, err) })
}

// value is the answer to a Get, less the bytes.
func value(e protocol.Deliver) *protocol.Value {
	return &protocol.Value{Bytes: e.Location.Bytes, Checksum: e.Location.Checksum, Landed: !e.Inline}
}

func (s *Store) deliverHere(e protocol.Deliver) error {
	into := s.calls.into(e.Request, e.Location.Bytes)
	if into == nil {
		return fmt.Errorf("%w: its reader is gone", protocol.ErrRefused)
	}
	if err := s.owned.heap.CopyOut(into, e.Location.Offset, e.Location.Checksum); err != nil {
		return err
	}
	s.calls.answer(s.self, e.Request, value(e))
	return nil
}

func (s *Store) deliverInline(e protocol.Deliver) error {
	payload, data := messages.Get().(*[]byte), []byte(nil)
	*payload, data = protocol.AppendValue((*payload)[:0], e.Request, value(e))
	if err := s.owned.heap.CopyOut(data, e.Location.Offset, e.Location.Checksum); err != nil {
		messages.Put(payload)
		s.outbox.over(e.To, e.Location.Bytes)
		return err
	}
	s.sendPayload(e.To, payload, func() { s.outbox.over(e.To, e.Location.Bytes) })
	return nil
}

// deliverLanding writes an object into memory that its reader has opened, and tells
// it so when the bytes are there.
func (s *Store) deliverLanding(e protocol.Deliver) error {
	ctx, cancel := context.WithTimeout(s.ctx, duration(e.For))
	defer cancel()
	local, err := s.options.Agent.LocalSpans(spans(s.owned.region, e.Location.Offset, e.Location.Bytes))
	if err != nil {
		return err
	}
	sums, err := s.owned.heap.Sums(e.Location.Offset, e.Location.Bytes, e.Location.Checksum)
	if err != nil {
		return err
	}
	landing := agent.RegionInfo{ID: e.Landing.Region, Epoch: e.Landing.Epoch}
	if e.Landing.Offset > 1<<62 {
		return fmt.Errorf("%w: a landing at %d", protocol.ErrRefused, e.Landing.Offset)
	}
	err = s.move(ctx, moving{
		op: fabric.Write, peer: e.To, local: local, remote: spans(landing, e.Landing.Offset, e.Location.Bytes),
		post: agent.PostOptions{
			Grant: e.Landing.Grant, Notification: protocol.AppendMessage(nil, e.Request, value(e)),
			Sums: fabric.KnownSums(s.owned.region.ID, e.Location.Offset, e.Location.Bytes, sums),
		},
	})
	if errors.Is(err, fabric.ErrChecksum) { // of the object, or of what became of it on the way
		err = cmp.Or(s.check(e.Location), err)
	}
	return err
}

// check sums an object that is leased where it lies; ErrTorn if it is broken.
func (s *Store) check(at owner.Location) error {
	return s.owned.heap.Check(at.Offset, at.Bytes, at.Checksum)
}

// beginLook looks at an object that a reader calls broken. mu is held.
func (s *Store) beginLook(e protocol.Verify) (do func()) {
	return s.background(func() {
		err := s.check(e.Location)
		s.step(func(now, _ kv.Instant) []protocol.Effect { return s.server.Looked(now, e, err) })
	})
}

// moving is bytes on their way between memory of this process and a peer's.
type moving struct {
	op     fabric.Op
	peer   kv.Member
	local  *agent.List
	remote fabric.List
	post   agent.PostOptions
}

// move reads or writes, and returns when the local memory is quiet.
func (s *Store) move(ctx context.Context, m moving) error {
	return s.peers.With(ctx, m.peer, func(p *agent.Peer) error {
		remote, err := p.RemoteSpans(m.remote)
		if err != nil {
			return err
		}
		request, err := s.options.Agent.Prepare(m.op, agent.Side{List: m.local}, agent.Side{List: remote})
		if err != nil {
			return err
		}
		defer request.Release()
		t, err := request.Post(ctx, m.post)
		if err != nil {
			return err
		}
		if err = t.Await(ctx); err != nil {
			_ = t.Cancel(context.WithoutCancel(ctx)) // local work only
		}
		return err
	})
}

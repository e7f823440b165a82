package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/keep/store/arena"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// A large value is put where it lies: its client opens the memory to an owner, which
// reads it into the arena. That memory is the caller's again when Put returns.

// source is the value of a put, for the owners that are asked in turn.
type source struct {
	store *Store
	value []byte
	at    place // registered memory with the value; none before it is needed
	// giveBack, where at is not the caller's own, ends that. It is not called when an
	// owner may still read there.
	giveBack func()
}

// lend opens the value to one owner. Shut returns when that reads it no more.
func (v *source) lend(ctx context.Context, to kv.Member) (span protocol.Span, shut func(), err error) {
	s := v.store
	if to == s.self {
		own := &ownSource{value: v.value}
		span := protocol.Span{Length: uint64(len(v.value)), Grant: s.owned.lend(own)}
		return span, func() { s.owned.takeBack(span.Grant, own) }, nil
	}
	if err := v.stage(ctx); err != nil {
		return span, nil, err
	}
	span, revoke, err := s.openPlace(ctx, to, fabric.Read, v.at)
	return span, func() {
		if !revoke() {
			v.giveBack = nil
		}
	}, err
}

// stage sees to it that the value lies in registered memory.
func (v *source) stage(ctx context.Context) (err error) {
	if v.at.buffer != nil {
		return nil
	}
	if at, is := v.store.buffered(v.value); is {
		v.at = at
		return nil
	}
	if v.at, v.giveBack, err = v.store.landing.take(ctx, uint64(len(v.value))); err == nil {
		copy(v.at.bytes(), v.value)
	}
	return err
}

func (v *source) close() {
	if v.giveBack != nil {
		v.giveBack()
	}
}

// openPlace opens memory of this process to a peer. Revoke ends that, and is false when
// it may not have: then the memory must not be used again.
func (s *Store) openPlace(ctx context.Context, to kv.Member, op fabric.Op, at place) (span protocol.Span, revoke func() bool, err error) {
	list, err := s.options.Agent.LocalSpans(at.list())
	if err != nil {
		return span, nil, err
	}
	grant, err := s.options.Agent.Grant(agent.GrantOptions{
		Peer: to.Name, Incarnation: to.Incarnation, Op: op, Side: agent.Side{List: list}, For: duration(s.deadline(ctx)-s.now()) + grantSlack, Sums: at.sums,
	})
	if err != nil {
		return span, nil, err
	}
	span = protocol.Span{Region: at.buffer.region.ID, Epoch: at.buffer.region.Epoch, Offset: at.offset, Length: at.length, Grant: grant}
	return span, func() bool {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
		defer cancel()
		err := s.options.Agent.Revoke(ctx, grant)
		if err == nil || errors.Is(err, fabric.ErrClosed) {
			return true
		}
		s.options.Logger.Error("memory that was open to a peer could not be closed, and is given up", "bytes", at.length, "op", op.String(), "error", err)
		return false
	}, nil
}

// ownSource is a value that the owner in this process may read: no agent's guard
// stands between it and the caller's memory.
type ownSource struct {
	reading sync.RWMutex // held for reading while it is read; protects value
	value   []byte       // nil when it is the caller's again
}

func (o *localOwner) lend(v *ownSource) (grant kv.ID) {
	grant = agent.NewID()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sources[grant] = v
	return grant
}

func (o *localOwner) takeBack(grant kv.ID, v *ownSource) {
	o.mu.Lock()
	delete(o.sources, grant)
	o.mu.Unlock()
	v.reading.Lock()
	defer v.reading.Unlock()
	v.value = nil
}

// fetch reads an object into the arena, out of its writer's memory.
func (s *Store) fetch(e protocol.Fetch) {
	var sum uint64
	var err error
	if e.From == s.self {
		sum, err = s.owned.fetchHere(e)
	} else {
		sum, err = s.fetchAway(e)
	}
	s.step(func(now, _ kv.Instant) []protocol.Effect { return s.server.Fetched(now, e.Write, sum, err) })
}

func (o *localOwner) fetchHere(e protocol.Fetch) (sum uint64, err error) {
	gone := fmt.Errorf("%w: its writer waits no longer", protocol.ErrUnavailable)
	o.mu.Lock()
	v := o.sources[e.Source.Grant]
	o.mu.Unlock()
	if v == nil {
		return 0, gone
	}
	v.reading.RLock()
	defer v.reading.RUnlock()
	if uint64(len(v.value)) != e.Plan.Bytes {
		return 0, gone
	}
	return o.heap.CopyIn(e.Plan.Offset, v.value), nil
}

// fetchAway has the sums taken while the bytes are placed, where the fabric can.
func (s *Store) fetchAway(e protocol.Fetch) (sum uint64, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, duration(e.For))
	defer cancel()
	if e.Source.Offset > 1<<62 {
		return 0, fmt.Errorf("%w: a value at %d", protocol.ErrRefused, e.Source.Offset)
	}
	o, plan := s.owned, e.Plan
	local, err := s.options.Agent.LocalSpans(spans(o.region, plan.Offset, plan.Bytes))
	if err != nil {
		return 0, err
	}
	sums := fabric.NewSums(o.region.ID, plan.Offset, plan.Bytes, false)
	from := agent.RegionInfo{ID: e.Source.Region, Epoch: e.Source.Epoch}
	err = s.move(ctx, moving{
		op: fabric.Read, peer: e.From, local: local, remote: spans(from, e.Source.Offset, plan.Bytes), post: agent.PostOptions{Grant: e.Source.Grant, Sums: sums},
	})
	switch {
	case errors.Is(err, fabric.ErrChecksum):
		return 0, fmt.Errorf("%w: on its way from %s: %w", arena.ErrTorn, e.From.Name, err)
	case err != nil:
		return 0, fmt.Errorf("%w: reading it from %s: %w", protocol.ErrUnavailable, e.From.Name, err)
	}
	if placed := sums.Of(plan.Bytes); placed != nil {
		return o.heap.PutSums(plan.Offset, plan.Bytes, placed), nil
	}
	return o.heap.SumPayload(plan.Offset, plan.Bytes), nil
}

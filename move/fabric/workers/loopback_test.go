package workers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/fabrictest"
	"meridian/move/fabric/workers"
	"meridian/move/mem"
)

// loopback is the smallest fabric there is, and the example of
// docs/extending.md: its only peer is itself. It passes the whole suite.
type loopback struct {
	self    fabric.Peer
	events  fabric.Events
	regions fabric.Regions
	pool    *workers.Pool
	closed  atomic.Bool
}

func (f *loopback) Name() string    { return "loopback" }
func (f *loopback) Address() []byte { return []byte(f.self.Name) }

func (f *loopback) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{Local: true, Read: true, Write: true, Notify: true, Kinds: []mem.Kind{mem.DRAM}}
}

func (f *loopback) Register(r fabric.Region) error { return f.regions.Add(r) }

// Deregister first makes the region unknown, then stops what was admitted
// before and waits for it: a worker looks at Stopped between two pieces.
func (f *loopback) Deregister(ctx context.Context, id uint64) error {
	if err := f.regions.Remove(id); err != nil {
		return err
	}
	cause := fmt.Errorf("%w: region %d was deregistered", fabric.ErrUnknownRegion, id)
	return f.pool.Fence(ctx, cause, func(t *workers.Task) bool {
		remote := slices.ContainsFunc(t.Prepared.Remote, func(p fabric.Part) bool { return p.Region == id })
		return remote || t.Prepared.Local.Touches(id)
	})
}

func (f *loopback) Connect(_ context.Context, p fabric.Peer) (fabric.Link, error) {
	switch {
	case f.closed.Load():
		return nil, fabric.ErrClosed
	case string(p.Address) != f.self.Name:
		return nil, fabric.ErrPeerGone
	case p.Incarnation != (kv.ID{}) && p.Incarnation != f.self.Incarnation:
		return nil, fmt.Errorf("%w: expected %s, came %s", fabric.ErrStalePeer, p.Incarnation, f.self.Incarnation)
	}
	return &loop{fabric: f}, nil
}

func (f *loopback) Close(ctx context.Context) error {
	f.closed.Store(true)
	return f.pool.Close(ctx)
}

type loop struct {
	fabric *loopback
	closed atomic.Bool
}

func (l *loop) Peer() fabric.Peer {
	return fabric.Peer{Name: l.fabric.self.Name, Incarnation: l.fabric.self.Incarnation, Address: l.fabric.Address()}
}

func (l *loop) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	return fabric.NewPrepared(&l.fabric.regions, op, local, remote)
}

func (l *loop) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	if l.closed.Load() || l.fabric.closed.Load() {
		return nil, fabric.ErrClosed
	}
	o.Notification = slices.Clone(o.Notification)
	return l.fabric.pool.Post(ctx, workers.Job{
		Group: l, ID: o.ID, Prepared: p, Run: func(t *workers.Task) (fabric.State, error) { return l.move(t, o) },
	})
}

// move checks once more what may have changed since Prepare, copies, notifies.
func (l *loop) move(t *workers.Task, o fabric.PostOptions) (fabric.State, error) {
	p := t.Prepared
	if err := l.fabric.regions.Current(p.Local); err != nil {
		return fabric.NotSubmitted, err
	}
	remote, err := l.fabric.regions.Bind(p.Remote)
	if err != nil {
		return fabric.NotSubmitted, err
	}
	defer remote.Release()
	t.Transfer.Advance(fabric.Submitting)
	to, from := p.Local, remote
	if p.Op == fabric.Write {
		to, from = remote, p.Local
	}
	target, source := to.List.Walk(), from.List.Walk()
	for target.Left() > 0 {
		if err := t.Stopped(); err != nil {
			return fabric.InDoubt, err
		}
		piece := source.Next(64 << 10)
		for at := uint64(0); at < piece.Length; {
			cut := target.Next(piece.Length - at)
			copy(to.Section(cut.Part).Bytes(cut.Offset, cut.Length), from.Section(piece.Part).Bytes(piece.Offset+at, cut.Length))
			at += cut.Length
		}
	}
	t.Transfer.Advance(fabric.Submitted)
	if o.Notify {
		n := fabric.Notification{From: l.fabric.self.Name, Incarnation: l.fabric.self.Incarnation, Transfer: o.ID, Payload: o.Notification}
		err = errors.Join(t.Stopped(), fabric.Deliver(l.fabric.events, n))
	}
	if err != nil {
		return fabric.InDoubt, err
	}
	return fabric.Done, nil
}

func (l *loop) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	if err := l.fabric.pool.Drain(ctx, l.posted); err != nil {
		return err
	}
	nothing, err := l.Prepare(fabric.Write, nil, nil)
	if err != nil {
		return err
	}
	defer nothing.Release()
	t, err := l.Post(ctx, nothing, fabric.PostOptions{ID: id, Notify: true, Notification: payload})
	if err != nil {
		return err
	}
	return t.Await(ctx)
}

func (l *loop) posted(t *workers.Task) bool { return t.Group == l }

func (l *loop) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return l.fabric.pool.Estimate(bytes, pieces)
}

func (l *loop) Close(ctx context.Context) error {
	l.closed.Store(true)
	return l.fabric.pool.Fence(ctx, fabric.ErrClosed, l.posted)
}

func TestLoopbackPassesTheSuite(t *testing.T) {
	fabrictest.Run(t, fabrictest.Options{
		Loopback: true,
		Brief:    true,
		Open: func(t testing.TB, self fabric.Peer, events fabric.Events, _ fabric.Guard) fabric.Fabric {
			pool, err := workers.Open(workers.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return &loopback{self: self, events: events, pool: pool}
		},
	})
}

package workers_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

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
	return &workers.Link{
		Pool: f.pool, Regions: &f.regions, Self: f.self, Far: f.self, Events: f.events, Bind: f.bind, Move: f.move,
	}, nil
}

func (f *loopback) Close(ctx context.Context) error {
	f.closed.Store(true)
	return f.pool.Close(ctx)
}

// bind asks for the far memory once more: what was prepared before a fence must
// not run after it.
func (f *loopback) bind(t *workers.Task, _ kv.ID) (*fabric.Bound, func(), error) {
	b, err := f.regions.Bind(t.Prepared.Remote)
	return b, b.Release, err
}

// move looks between two pieces whether it was stopped.
func (f *loopback) move(to, from *fabric.Bound, stopped func() error) (begun bool, err error) {
	target, source := to.List.Walk(), from.List.Walk()
	for target.Left() > 0 {
		if err := stopped(); err != nil {
			return true, err
		}
		piece := source.Next(64 << 10)
		for at := uint64(0); at < piece.Length; {
			cut := target.Next(piece.Length - at)
			copy(to.Section(cut.Part).Bytes(cut.Offset, cut.Length), from.Section(piece.Part).Bytes(piece.Offset+at, cut.Length))
			at += cut.Length
		}
	}
	return true, nil
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
			self.Address = []byte(self.Name)
			return &loopback{self: self, events: events, pool: pool}
		},
	})
}

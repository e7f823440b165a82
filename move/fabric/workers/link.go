package workers

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// Link is a connection whose poster moves the bytes, in either direction, on a
// worker of its pool. A fabric says how it comes to the far memory, and how
// bytes move.
type Link struct {
	Pool    *Pool
	Regions *fabric.Regions // the poster's
	Self    fabric.Peer     // the poster
	Far     fabric.Peer     // who is at the other end
	Events  fabric.Events   // of the other end
	// Bind lets a transfer touch the far memory, until release.
	Bind func(t *Task, grant kv.ID) (remote *fabric.Bound, release func(), err error)
	// Move brings src to dst and tells whether any byte may be in place. It asks
	// stopped between any two pieces.
	Move func(dst, src *fabric.Bound, stopped func() error) (begun bool, err error)

	mu    sync.Mutex // protects ended
	ended error      // why nothing more can be posted
}

// Peer is who is at the other end.
func (l *Link) Peer() fabric.Peer { return l.Far }

// Prepare checks a request.
func (l *Link) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	return fabric.NewPrepared(l.Regions, op, local, remote)
}

// Post queues a transfer for one of the poster's workers.
func (l *Link) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	if err := l.Usable(); err != nil {
		return nil, err
	}
	o.Notification = bytes.Clone(o.Notification) // the caller's buffer is his again
	return l.Pool.Post(ctx, Job{
		Group: l, ID: o.ID, Prepared: p,
		Run: func(t *Task) (fabric.State, error) { return l.run(t, o) },
	})
}

// run is a transfer on a worker. The link and the local regions are looked at
// here, not in Post: from now on End and Deregister find the task, so what they
// ended before is seen, and what they end later stops it.
func (l *Link) run(t *Task, o fabric.PostOptions) (fabric.State, error) {
	p := t.Prepared
	if err := errors.Join(l.Usable(), l.Regions.Current(p.Local)); err != nil {
		return fabric.NotSubmitted, err
	}
	remote, release, err := l.Bind(t, o.Grant)
	if err != nil {
		return fabric.NotSubmitted, err
	}
	defer release()
	t.Transfer.Advance(fabric.Submitting)
	dst, src := p.Local, remote
	if p.Op == fabric.Write {
		dst, src = remote, p.Local
	}
	begun, err := l.Move(dst, src, t.Stopped)
	if err == nil {
		t.Transfer.Advance(fabric.Submitted)
		err = t.Stopped()
	}
	if err == nil && o.Notify {
		err = fabric.Deliver(l.Events, fabric.Notification{
			From: l.Self.Name, Incarnation: l.Self.Incarnation, Transfer: o.ID, Payload: o.Notification,
		})
	}
	switch {
	case err == nil:
		return fabric.Done, nil
	case !begun:
		return fabric.NotSubmitted, err
	}
	return fabric.InDoubt, err
}

// Notify is a transfer of nothing, once everything posted before has ended.
func (l *Link) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	if err := l.Pool.Drain(ctx, l.posted); err != nil {
		return err
	}
	t, err := fabric.PostNotification(ctx, l, id, payload)
	if err != nil {
		return err
	}
	return t.Await(ctx)
}

// Estimate rests on what the poster's workers have measured.
func (l *Link) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return l.Pool.Estimate(bytes, pieces)
}

// Close ends the link.
func (l *Link) Close(ctx context.Context) error {
	l.End(fabric.ErrClosed)
	return l.Fence(ctx, fabric.ErrClosed)
}

// End lets nothing more be posted, and tells whether this is the first cause.
func (l *Link) End(cause error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.ended == nil
	if first {
		l.ended = cause
	}
	return first
}

// Fence stops what was posted here, and returns when it is over.
func (l *Link) Fence(ctx context.Context, cause error) error {
	return l.Pool.Fence(ctx, cause, l.posted)
}

func (l *Link) posted(t *Task) bool { return t.Group == l }

// Usable is nil until the link has ended.
func (l *Link) Usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

package inproc

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/workers"
)

// link is a connection between two fabrics of this process, or of one with
// itself.
type link struct {
	near, far *Fabric
	peer      fabric.Peer

	mu    sync.Mutex // protects ended
	ended error      // why nothing more can be posted
}

// Peer is who is at the other end.
func (l *link) Peer() fabric.Peer { return l.peer }

// Prepare checks a request.
func (l *link) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	return fabric.NewPrepared(&l.near.regions, op, local, remote)
}

// Post queues a transfer for one of the poster's workers.
func (l *link) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	o.Notification = bytes.Clone(o.Notification) // the caller's buffer is his again
	return l.near.pool.Post(ctx, workers.Job{
		Group: l, ID: o.ID, Prepared: p,
		Run: func(t *workers.Task) (fabric.State, error) { return l.move(t, o) },
	})
}

// move runs on a worker. The link and the local regions are looked at here, not
// in Post: from now on Close and Deregister find the task, so what they ended
// before is seen, and what they end later stops it.
func (l *link) move(t *workers.Task, o fabric.PostOptions) (fabric.State, error) {
	p := t.Prepared
	if err := errors.Join(l.usable(), l.near.regions.Current(p.Local)); err != nil {
		return fabric.NotSubmitted, err
	}
	remote, err := l.far.admit(t, l.near, o.Grant)
	if err != nil {
		return fabric.NotSubmitted, err
	}
	defer l.far.dismiss(t)
	t.Transfer.Advance(fabric.Submitting)
	destination, source := p.Local, remote
	if p.Op == fabric.Write {
		destination, source = remote, p.Local
	}
	c := copier{checked: !l.near.options.NoChecksums}
	moved, err := c.list(destination, source, t.Stopped)
	if err == nil {
		t.Transfer.Advance(fabric.Submitted)
		err = t.Stopped()
	}
	if err == nil && o.Notify {
		err = l.notify(o)
	}
	switch {
	case err == nil:
		return fabric.Done, nil
	case moved == 0:
		return fabric.NotSubmitted, err
	}
	return fabric.InDoubt, err
}

func (l *link) notify(o fabric.PostOptions) error {
	self := l.near.options
	n := fabric.Notification{From: self.Agent, Incarnation: self.Incarnation, Transfer: o.ID, Payload: o.Notification}
	return fabric.Deliver(l.far.options.Events, n)
}

// Notify is a transfer of nothing, once everything posted before has ended.
func (l *link) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	if err := l.near.pool.Drain(ctx, l.posted); err != nil {
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

// Estimate rests on what the poster's workers have measured.
func (l *link) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return l.near.pool.Estimate(bytes, pieces)
}

// Close ends the link.
func (l *link) Close(ctx context.Context) error { return l.end(ctx, fabric.ErrClosed) }

// end stops what was posted here. A cause other than the poster's own Close is
// news to him.
func (l *link) end(ctx context.Context, cause error) error {
	l.mu.Lock()
	first := l.ended == nil
	if first {
		l.ended = cause
	}
	l.mu.Unlock()
	l.near.forget(l)
	l.far.forget(l)
	err := l.near.pool.Fence(ctx, cause, l.posted)
	if first && !errors.Is(cause, fabric.ErrClosed) {
		l.near.options.Events.LinkLost(l.peer, cause)
	}
	return err
}

func (l *link) posted(t *workers.Task) bool { return t.Group == l }

func (l *link) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

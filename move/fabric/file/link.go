package file

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

// link is a fabric's connection with itself.
type link struct {
	fabric *Fabric
	self   fabric.Peer

	mu     sync.Mutex // protects closed
	closed bool
}

// Peer is this agent.
func (l *link) Peer() fabric.Peer { return l.self }

// Prepare checks a request.
func (l *link) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	return fabric.NewPrepared(&l.fabric.regions, op, local, remote)
}

// Post queues a transfer.
func (l *link) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	o.Notification = bytes.Clone(o.Notification) // the caller's buffer is his again
	return l.fabric.pool.Post(ctx, workers.Job{
		Group: l, ID: o.ID, Prepared: p,
		Run: func(t *workers.Task) (fabric.State, error) { return l.move(t, o) },
	})
}

// move runs on a worker. Only now, when Close and Deregister find the task, is
// what they ended before looked for.
func (l *link) move(t *workers.Task, o fabric.PostOptions) (fabric.State, error) {
	p, f := t.Prepared, l.fabric
	if err := errors.Join(l.usable(), f.regions.Current(p.Local)); err != nil {
		return fabric.NotSubmitted, err
	}
	remote, err := f.regions.BindAs(p.Remote, p.Op == fabric.Write)
	if err != nil {
		return fabric.NotSubmitted, err
	}
	defer remote.Release()
	t.Transfer.Advance(fabric.Submitting)
	m := mover{
		checked: !f.options.NoChecksums, sync: f.options.Sync, stopped: t.Stopped,
		dst: side{p.Local, f.disksOf(p.Local.List)}, src: side{remote, f.disksOf(remote.List)},
	}
	if p.Op == fabric.Write {
		m.dst, m.src = m.src, m.dst
	}
	if err = m.run(); err == nil {
		t.Transfer.Advance(fabric.Submitted)
		err = t.Stopped()
	}
	if err == nil && o.Notify {
		err = fabric.Deliver(f.options.Events, fabric.Notification{
			From: l.self.Name, Incarnation: l.self.Incarnation, Transfer: o.ID, Payload: o.Notification,
		})
	}
	switch {
	case err == nil:
		return fabric.Done, nil
	case !m.begun:
		return fabric.NotSubmitted, err
	}
	return fabric.InDoubt, err
}

// Notify is a transfer of nothing, once everything posted before has ended.
func (l *link) Notify(ctx context.Context, id kv.ID, payload []byte) error {
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

// Estimate rests on what the workers have measured.
func (l *link) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return l.fabric.pool.Estimate(bytes, pieces)
}

// Close ends what was posted here.
func (l *link) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.fabric.pool.Fence(ctx, fabric.ErrClosed, l.posted)
}

func (l *link) posted(t *workers.Task) bool { return t.Group == l }

func (l *link) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.fabric.isClosed() {
		return fabric.ErrClosed
	}
	return nil
}

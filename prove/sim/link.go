package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
)

// peerLink is what an agent holds: it connects when it must, and connects again when
// the connection was lost.
type peerLink struct {
	rail    *rail
	peer    fabric.Peer
	current *connection
	closed  bool
	fatal   error // another incarnation answered: the one that was meant is gone for good
}

// Peer is who is at the other end.
func (l *peerLink) Peer() fabric.Peer { return l.peer }

func (l *peerLink) connected() (*connection, error) {
	switch {
	case l.closed || l.rail.closed:
		return nil, l.error("connect", fabric.ErrClosed)
	case l.fatal != nil:
		return nil, l.error("connect", l.fatal)
	case l.current != nil:
		return l.current, nil
	}
	peer, err := l.rail.reach(l.peer.Address)
	if err != nil {
		return nil, l.error("connect", err)
	}
	if answers := peer.self.Incarnation; l.peer.Incarnation != (kv.ID{}) && l.peer.Incarnation != answers {
		l.fatal = fmt.Errorf("%w: expected %s, this is %s", fabric.ErrStalePeer, l.peer.Incarnation, answers)
		return nil, l.error("connect", l.fatal)
	}
	l.current = connect(l, peer)
	return l.current, nil
}

func (l *peerLink) error(op string, err error) error {
	return &fabric.Error{Op: op, Subject: l.peer.Name, Err: err}
}

// Prepare checks a request and cuts it into parts.
func (l *peerLink) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	swarm := &l.rail.process.world.swarm
	cutter := link.Cutter{Streams: swarm.streams, WholePart: swarm.wholePart, Lend: swarm.lends[l.rail.number]}
	p, err := cutter.Prepare(&l.rail.regions, op, local, remote)
	if err != nil {
		return nil, l.error("prepare", err)
	}
	return p, nil
}

// Post starts a prepared request.
func (l *peerLink) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	c, err := l.connected()
	if err != nil {
		return nil, err
	}
	l.rail.process.world.carriedBy(o.ID, c)
	t, err := c.poster.Post(ctx, p, o)
	if err != nil {
		return nil, l.error(p.Op.String(), err)
	}
	return t, nil
}

// Notify delivers payload by itself. It is link.Poster.Notify on a fiber.
func (l *peerLink) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	c, err := l.connected()
	if err != nil {
		return err
	}
	p, late := l.rail.process, false
	if deadline, has := ctx.Deadline(); has {
		p.world.after(deadline.Sub(p.clock.Now()), p, func() { late = true })
	}
	before := c.poster.Running()
	p.await(func() bool {
		before = slices.DeleteFunc(before, func(t *fabric.Transfer) bool {
			state, _ := t.Status()
			return state.Ended()
		})
		return late || len(before) == 0
	})
	if len(before) > 0 {
		return l.error("notify", fmt.Errorf("%w: waiting for what was posted before notification %s", context.DeadlineExceeded, id))
	}
	var answer error
	answered := false
	if err := c.poster.Announce(id, payload, 0, func(err error) { answer, answered = err, true }); err != nil {
		return l.error("notify", err)
	}
	p.await(func() bool { return late || answered })
	if !answered {
		c.poster.Withdraw(id)
		answer = fmt.Errorf("%w: waiting for the peer to take notification %s", context.DeadlineExceeded, id)
	}
	if answer != nil {
		return l.error("notify", answer)
	}
	return nil
}

// Announce delivers payload by itself, now, where there is a connection. It is
// link.Redial.Announce.
func (l *peerLink) Announce(id kv.ID, payload []byte, within time.Duration, ended func(error)) error {
	c := l.current
	if c == nil {
		return l.error("announce", fabric.ErrUnconnected)
	}
	err := c.poster.Announce(id, payload, within, ended)
	switch {
	case err == nil:
		return nil
	case c.poster.Gone() != nil:
		return l.error("announce", fabric.ErrUnconnected)
	}
	return l.error("announce", err)
}

// Estimate is of no use in a world without real time.
func (l *peerLink) Estimate(fabric.Op, uint64, uint64) time.Duration { return time.Millisecond }

// Close ends the link.
func (l *peerLink) Close(context.Context) error {
	l.closed = true
	if l.current != nil {
		l.current.poster.Lost(fabric.ErrClosed)
	}
	l.rail.links = slices.DeleteFunc(l.rail.links, func(other *peerLink) bool { return other == l })
	return nil
}

// drop forgets a connection that was lost.
func (l *peerLink) drop(c *connection, err error) {
	if l.current != c {
		return
	}
	l.current = nil
	if !l.closed && !errors.Is(err, fabric.ErrClosed) {
		l.rail.self.Events.LinkLost(l.peer, err)
	}
}

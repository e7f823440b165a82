package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/kv"
	"meridian/mrdn"
)

// peerLink is what a caller holds. It connects when it must, also again after a
// connection was lost; on one machine a dead peer refuses at once.
type peerLink struct {
	fabric *Fabric
	peer   fabric.Peer

	dialing chan struct{} // has room for one who dials

	mu      sync.Mutex // protects the rest
	current *connection
	closed  bool
}

// Peer is who is at the other end.
func (l *peerLink) Peer() fabric.Peer { return l.peer }

func (l *peerLink) state() (*connection, error) {
	l.mu.Lock()
	c, closed := l.current, l.closed
	l.mu.Unlock()
	if closed {
		return nil, l.error("connect", fabric.ErrClosed)
	}
	if c == nil {
		return nil, nil
	}
	if gone := c.isGone(); gone != nil {
		l.drop(c, gone)
		return nil, nil
	}
	return c, nil
}

// connected returns the connection, making one if need be. One goroutine dials;
// others wait for it.
func (l *peerLink) connected(ctx context.Context) (*connection, error) {
	if c, err := l.state(); c != nil || err != nil {
		return c, err
	}
	select {
	case l.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, l.error("connect", fmt.Errorf("%w: %w", fabric.ErrPeerGone, ctx.Err()))
	}
	defer func() { <-l.dialing }()
	if c, err := l.state(); c != nil || err != nil {
		return c, err
	}
	conn, err := l.fabric.dial(ctx, l.peer)
	if err != nil {
		return nil, l.error("connect", err)
	}
	c, err := newConnection(l, conn)
	if err != nil {
		conn.Close()
		return nil, l.error("connect", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.fabric.keep(c) != nil {
		c.abandon()
		return nil, l.error("connect", fabric.ErrClosed)
	}
	l.current = c
	c.start()
	return c, nil
}

func (l *peerLink) error(op string, err error) error { return fabric.Dress(op, l.peer, err) }

// drop forgets a connection that was lost.
func (l *peerLink) drop(c *connection, err error) {
	l.mu.Lock()
	mine, closed := l.current == c, l.closed
	if mine {
		l.current = nil
	}
	l.mu.Unlock()
	if mine && !closed && !errors.Is(err, fabric.ErrClosed) {
		l.fabric.options.Events.LinkLost(l.peer, err)
	}
}

// plan is what Prepare works out once: the lists as they are sent. A read sends
// only where it wants to read, and only to a peer that wants to be asked.
type plan struct{ from, to []byte }

func (p *plan) tooLong() error {
	if max(len(p.from), len(p.to)) <= mrdn.MaxLinkFrame/2 {
		return nil
	}
	return fmt.Errorf("%w: the list does not fit one request; split it", fabric.ErrBusy)
}

// Prepare checks a request.
func (l *peerLink) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	p, err := fabric.NewPrepared(&l.fabric.regions, op, local, remote)
	if err != nil {
		return nil, l.error("prepare", err)
	}
	cut := &plan{to: remote.AppendTo(nil)}
	p.Plan = cut
	if op == fabric.Read {
		return p, nil
	}
	cut.from = local.AppendTo(nil)
	if err := cut.tooLong(); err != nil {
		p.Release()
		return nil, l.error("prepare", err)
	}
	return p, nil
}

// Post starts a prepared request.
func (l *peerLink) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	c, err := l.connected(ctx)
	if err != nil {
		return nil, err
	}
	t, err := c.post(ctx, p, o)
	if err != nil {
		return nil, l.error(p.Op.String(), err)
	}
	return t, nil
}

// Notify delivers payload by itself.
func (l *peerLink) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	c, err := l.connected(ctx)
	if err != nil {
		return err
	}
	if err := c.notify(ctx, id, payload); err != nil {
		return l.error("notify", err)
	}
	return nil
}

// Estimate assumes 8 GB/s, with 10 µs for a wake-up and 50 ns a piece; the agent
// refines it by what it measures.
func (l *peerLink) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return 10*time.Microsecond + time.Duration(bytes/8) + time.Duration(pieces*50)
}

// Close ends the link.
func (l *peerLink) Close(context.Context) error {
	l.mu.Lock()
	l.closed = true
	c := l.current
	l.mu.Unlock()
	if c != nil {
		c.lost(fabric.ErrClosed)
		<-c.stopped
	}
	l.fabric.mu.Lock()
	delete(l.fabric.links, l)
	l.fabric.mu.Unlock()
	return nil
}

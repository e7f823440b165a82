package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/fabric/link"
	"meridian/kv"
)

// peerLink is what a caller holds: it connects when it must, and connects again
// when the connection was lost.
type peerLink struct {
	fabric *Fabric
	peer   fabric.Peer

	mu      sync.Mutex // protects the rest
	current *connection
	closed  bool
	// dialing is closed when the attempt that runs has ended.
	dialing chan struct{}
	backoff time.Duration
	// stale: another incarnation answered, or none that speaks our version. It is
	// believed for a while only, because who said so has proven nothing.
	stale      error
	staleUntil time.Time
}

func newLink(f *Fabric, p fabric.Peer) *peerLink { return &peerLink{fabric: f, peer: p} }

// Peer is who is at the other end.
func (l *peerLink) Peer() fabric.Peer { return l.peer }

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// connected returns the connection, making one if need be. One goroutine dials;
// others wait for it.
func (l *peerLink) connected(ctx context.Context) (*connection, error) {
	for {
		l.mu.Lock()
		switch {
		case l.closed:
			l.mu.Unlock()
			return nil, l.error("connect", fabric.ErrClosed)
		case l.stale != nil && time.Now().Before(l.staleUntil):
			stale := l.stale
			l.mu.Unlock()
			return nil, l.error("connect", stale)
		case l.current != nil:
			c := l.current
			l.mu.Unlock()
			if gone := c.poster.Gone(); gone != nil {
				l.drop(c, gone)
				continue
			}
			return c, nil
		}
		if wait := l.dialing; wait != nil {
			l.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, l.error("connect", fmt.Errorf("%w: %w", fabric.ErrPeerGone, ctx.Err()))
			}
		}
		l.dialing = make(chan struct{})
		pause := l.backoff
		l.mu.Unlock()
		c, err := l.attempt(ctx, pause)
		l.mu.Lock()
		close(l.dialing)
		l.dialing = nil
		switch {
		case err == nil && l.closed:
			l.mu.Unlock()
			c.poster.Lost(fabric.ErrClosed)
			return nil, l.error("connect", fabric.ErrClosed)
		case err == nil:
			l.current, l.backoff = c, 0
		case errors.Is(err, fabric.ErrStalePeer), errors.Is(err, fabric.ErrVersion):
			l.stale, l.staleUntil = err, time.Now().Add(lastBackoff)
		default:
			l.backoff = min(max(firstBackoff, 2*l.backoff), lastBackoff)
		}
		l.mu.Unlock()
		return c, err
	}
}

// attempt waits out the backoff and dials every stream.
func (l *peerLink) attempt(ctx context.Context, pause time.Duration) (*connection, error) {
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, l.error("connect", fmt.Errorf("%w: %w", fabric.ErrPeerGone, ctx.Err()))
		}
	}
	var id kv.ID
	rand.Read(id[:])
	c := newConnection(l)
	for i := range l.fabric.options.Streams {
		conn, err := l.fabric.dial(ctx, l.peer, id, i)
		if err != nil {
			c.abandon()
			return nil, l.error("connect", err)
		}
		s, err := newStream(conn, &l.fabric.options, c.poster)
		if err != nil {
			conn.Close()
			c.abandon()
			return nil, l.error("connect", err)
		}
		c.add(s)
	}
	c.start()
	return c, nil
}

func (l *peerLink) error(op string, err error) error { return fabric.WithOp(op, l.peer, err) }

// drop forgets a connection that was lost.
func (l *peerLink) drop(c *connection, err error) {
	l.mu.Lock()
	mine := l.current == c
	if mine {
		l.current = nil
	}
	closed := l.closed
	l.mu.Unlock()
	if mine && !closed && !errors.Is(err, fabric.ErrClosed) {
		l.fabric.options.Events.LinkLost(l.peer, err)
	}
}

// Prepare checks a request and cuts it into parts.
func (l *peerLink) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	p, err := link.Prepare(&l.fabric.regions, l.fabric.options.Streams, op, local, remote)
	if err != nil {
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
	t, err := c.poster.Post(ctx, p, o)
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
	if err := c.poster.Notify(ctx, id, payload); err != nil {
		return l.error("notify", err)
	}
	return nil
}

// Estimate assumes a link that moves 3 GB/s, with 20 µs for a round trip and a
// third of a microsecond a piece; the agent refines it by what it measures.
func (l *peerLink) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return 20*time.Microsecond + time.Duration(bytes/3) + time.Duration(pieces*300)
}

// Close ends the link.
func (l *peerLink) Close(context.Context) error {
	l.mu.Lock()
	l.closed = true
	c := l.current
	l.mu.Unlock()
	if c != nil {
		c.poster.Lost(fabric.ErrClosed)
		c.wait.Wait()
	}
	l.fabric.mu.Lock()
	delete(l.fabric.links, l)
	l.fabric.mu.Unlock()
	return nil
}

func (l *peerLink) fence(region uint64, cause error) {
	l.mu.Lock()
	c := l.current
	l.mu.Unlock()
	if c != nil {
		c.poster.Fence(region, cause)
	}
}

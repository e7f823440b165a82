package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/fabric/link"
	"meridian/kv"
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
	if gone := c.poster.Gone(); gone != nil {
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
	c, err := l.newConnection(conn)
	if err != nil {
		conn.Close()
		return nil, l.error("connect", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.fabric.keep(c.stream) != nil {
		c.abandon()
		return nil, l.error("connect", fabric.ErrClosed)
	}
	l.current = c
	c.start()
	return c, nil
}

func (l *peerLink) error(op string, err error) error { return fabric.WithOp(op, l.peer, err) }

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

// Prepare checks a request.
func (l *peerLink) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	p, err := link.Cutter{Streams: 1, WholePart: 1, Lend: true}.Prepare(&l.fabric.regions, op, local, remote)
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
		c.poster.Lost(fabric.ErrClosed)
		<-c.stopped
	}
	l.fabric.mu.Lock()
	delete(l.fabric.links, l)
	l.fabric.mu.Unlock()
	return nil
}

// connection is the posting side of one life of a link.
type connection struct {
	link    *peerLink
	poster  *link.Poster
	stream  *stream
	stopped chan struct{} // closed when nothing of the stream runs
}

func (l *peerLink) newConnection(conn *net.UnixConn) (*connection, error) {
	c := &connection{link: l, stopped: make(chan struct{})}
	c.poster = link.NewPoster(link.PosterOptions{
		Regions: &l.fabric.regions, Clock: fabric.SystemClock, MaxTransfers: l.fabric.options.MaxTransfers,
		OnLost: func(err error) {
			l.fabric.forget(c.stream)
			l.drop(c, err)
		},
	})
	var err error
	if c.stream, err = l.fabric.newStream(conn, l.peer.Name, c.poster); err != nil {
		return nil, err
	}
	c.poster.Attach(c.stream.lending)
	return c, nil
}

func (c *connection) start() {
	c.link.fabric.wait.Go(func() {
		defer close(c.stopped)
		c.stream.wire.run()
	})
}

// abandon ends what never started.
func (c *connection) abandon() {
	c.stream.Close()
	close(c.stopped)
}

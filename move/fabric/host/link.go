package host

import (
	"context"
	"errors"
	"net"
	"time"

	"meridian/move/fabric"
	"meridian/move/fabric/link"
)

// peerLink is what a caller holds. On one machine a dead peer refuses at once,
// so it never waits before it connects again.
type peerLink struct {
	*link.Redial
	fabric *Fabric
	peer   fabric.Peer
}

func newLink(f *Fabric, p fabric.Peer) *peerLink {
	l := &peerLink{fabric: f, peer: p}
	l.Redial = link.NewRedial(link.RedialOptions{
		Peer: p, Regions: &f.regions, Cutter: link.Cutter{Streams: 1, WholePart: 1, Lend: true}, Dial: l.dial, Lost: f.options.Events.LinkLost,
	})
	return l
}

func (l *peerLink) dial(ctx context.Context) (link.Connection, error) {
	conn, capabilities, err := l.fabric.dial(ctx, l.peer)
	if err != nil {
		return nil, err
	}
	c, err := l.newConnection(conn, capabilities)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := l.fabric.keep(c.stream); err != nil {
		c.abandon()
		return nil, err
	}
	c.start()
	return c, nil
}

// Estimate assumes 8 GB/s, with 10 µs for a wake-up and 50 ns a piece; the agent
// refines it by what it measures.
func (l *peerLink) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return 10*time.Microsecond + time.Duration(bytes/8) + time.Duration(pieces*50)
}

// Close ends the link.
func (l *peerLink) Close(ctx context.Context) error {
	err := l.Redial.Close(ctx)
	err = errors.Join(err, l.fabric.gpu.quiet(ctx, func(j *gpuJob) bool { return j.borrowed.link == l }))
	l.fabric.mu.Lock()
	delete(l.fabric.links, l)
	l.fabric.mu.Unlock()
	return err
}

// connection is the posting side of one life of a link.
type connection struct {
	link    *peerLink
	poster  *link.Poster
	stream  *stream
	stopped chan struct{} // closed when nothing of the stream runs
}

func (l *peerLink) newConnection(conn *net.UnixConn, capabilities uint64) (*connection, error) {
	c := &connection{link: l, stopped: make(chan struct{})}
	c.poster = link.NewPoster(link.PosterOptions{
		Regions: &l.fabric.regions, Clock: fabric.SystemClock, MaxTransfers: l.fabric.options.MaxTransfers,
		OnLost: func(err error) {
			l.fabric.forget(c.stream)
			l.Drop(c, err)
		},
	})
	var err error
	if c.stream, err = l.fabric.newStream(conn, l.peer.Name, c.poster); err != nil {
		return nil, err
	}
	c.stream.borrowed.link = l
	c.poster.Capable(capabilities)
	c.poster.Attach(c.stream.lending)
	return c, nil
}

// Posting is the end that posts on it.
func (c *connection) Posting() *link.Poster { return c.poster }

// Wait returns when nothing of the stream runs.
func (c *connection) Wait() { <-c.stopped }

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

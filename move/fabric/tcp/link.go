package tcp

import (
	"context"
	"crypto/rand"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/link"
)

// peerLink is what a caller holds.
type peerLink struct {
	*link.Redial
	fabric *Fabric
	peer   fabric.Peer
}

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

func newLink(f *Fabric, p fabric.Peer) *peerLink {
	l := &peerLink{fabric: f, peer: p}
	l.Redial = link.NewRedial(link.RedialOptions{
		Peer: p, Regions: &f.regions, Cutter: link.CutFor(f.options.Streams), Dial: l.dial,
		FirstBackoff: firstBackoff, LastBackoff: lastBackoff, Lost: f.options.Events.LinkLost,
	})
	return l
}

// dial opens every stream of a connection.
func (l *peerLink) dial(ctx context.Context) (link.Connection, error) {
	var id kv.ID
	rand.Read(id[:])
	c := newConnection(l)
	for i := range l.fabric.options.Streams {
		conn, capabilities, err := l.fabric.dial(ctx, l.peer, id, i)
		if err != nil {
			c.abandon()
			return nil, err
		}
		s, err := newStream(conn, &l.fabric.options, c.poster)
		if err != nil {
			conn.Close()
			c.abandon()
			return nil, err
		}
		c.add(s)
		c.poster.Capable(capabilities)
	}
	c.start()
	return c, nil
}

// Estimate assumes a link that moves 3 GB/s, with 20 µs for a round trip and a
// third of a microsecond a piece; the agent refines it by what it measures.
func (l *peerLink) Estimate(_ fabric.Op, bytes, pieces uint64) time.Duration {
	return 20*time.Microsecond + time.Duration(bytes/3) + time.Duration(pieces*300)
}

// Close ends the link.
func (l *peerLink) Close(ctx context.Context) error {
	err := l.Redial.Close(ctx)
	l.fabric.mu.Lock()
	delete(l.fabric.links, l)
	l.fabric.mu.Unlock()
	return err
}

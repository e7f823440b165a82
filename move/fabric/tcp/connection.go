package tcp

import (
	"fmt"
	"sync"
	"time"

	"meridian/move/fabric/link"
)

// connection is one life of a link: its streams, and the end that posts on
// them.
type connection struct {
	link    *peerLink
	poster  *link.Poster
	streams []*stream
	wait    sync.WaitGroup
	stopped chan struct{} // closed when the connection is lost
}

func newConnection(l *peerLink) *connection {
	c := &connection{link: l, stopped: make(chan struct{})}
	c.poster = link.NewPoster(link.PosterOptions{
		Regions: &l.fabric.regions, Clock: l.fabric.options.Clock, MaxTransfers: l.fabric.options.MaxTransfers,
		OnLost: func(err error) {
			close(c.stopped)
			l.Drop(c, err)
		},
	})
	return c
}

// Posting is the end that posts on it.
func (c *connection) Posting() *link.Poster { return c.poster }

// Wait returns when no goroutine of it runs.
func (c *connection) Wait() { c.wait.Wait() }

func (c *connection) add(s *stream) {
	c.streams = append(c.streams, s)
	c.poster.Attach(s)
}

func (c *connection) start() {
	for _, s := range c.streams {
		c.run(s.run)
	}
	c.run(c.watch)
}

// run counts a goroutine for the link and for the fabric.
func (c *connection) run(work func()) {
	c.wait.Add(1)
	c.link.fabric.wait.Go(func() {
		defer c.wait.Done()
		work()
	})
}

// watch keeps an eye on silent streams.
func (c *connection) watch() {
	ticker := time.NewTicker(c.link.fabric.options.KeepAlive)
	defer ticker.Stop()
	for {
		select {
		case <-c.stopped:
			return
		case <-ticker.C:
			for _, s := range c.streams {
				if s.keepAlive() {
					c.poster.Lost(fmt.Errorf("no answer for %v", 3*s.options.KeepAlive))
				}
			}
		}
	}
}

// abandon closes streams that never started.
func (c *connection) abandon() {
	for _, s := range c.streams {
		s.socket.conn.Close()
	}
}

package sim

import (
	"errors"
	"fmt"
	"slices"

	"meridian/move/fabric/link"
)

// connection is one life of a link: its streams and both its ends.
type connection struct {
	serial    int
	link      *peerLink
	near, far *rail
	poster    *link.Poster
	server    *link.Server
	nearSide  []*stream
	farSide   []*stream
	nearLost  bool
	farLost   bool
	dead      bool // what is sent from now on arrives nowhere
}

// connect makes the streams of a link.
func connect(l *peerLink, far *rail) *connection {
	near, w := l.rail, l.rail.process.world
	c := &connection{serial: len(w.connections) + 1, link: l, near: near, far: far}
	w.connections = append(w.connections, c)
	c.poster = link.NewPoster(link.PosterOptions{
		Regions: &near.regions, Clock: near.process.clock, MaxTransfers: w.swarm.transfers,
		OnLost: func(err error) {
			c.nearLost = true
			w.note(near.process, nil, "has lost connection %d: %v", c.serial, err)
			l.drop(c, err)
		},
	})
	c.server = link.NewServer(link.ServerOptions{
		Peer: near.self.Name, Incarnation: near.self.Incarnation, Regions: &far.regions, Guard: far.self.Guard,
		Events: eventChecker{far.self.Events, far.process}, Clock: far.process.clock, MaxTransfers: w.swarm.transfers, Remember: w.swarm.remember,
		OnLost: func(err error) {
			c.farLost = true
			w.note(far.process, nil, "has lost connection %d, which it served: %v", c.serial, err)
			far.services = slices.DeleteFunc(far.services, func(other *connection) bool { return other == c })
		},
	})
	for range w.swarm.streams {
		n, f := newStream(c, near), newStream(c, far)
		n.end, f.end = c.poster, c.server
		n.out, f.out = newPipe(n, f), newPipe(f, n)
		c.nearSide, c.farSide = append(c.nearSide, n), append(c.farSide, f)
		if w.swarm.lends[near.number] {
			x, y := lendOver(n, false), lendOver(f, true)
			x.other, y.other = y, x
			c.poster.Attach(n.lending)
			c.server.Attach(f.lending)
			continue
		}
		c.poster.Attach(n)
		c.server.Attach(f)
	}
	far.services = append(far.services, c)
	w.note(near.process, nil, "connects to %v: connection %d, on rail %d", far.process, c.serial, near.number)
	c.watch(near, c.nearSide, &c.nearLost, c.poster.Lost)
	c.watch(far, c.farSide, &c.farLost, c.server.Lost)
	return c
}

// watch keeps an eye on the silent streams of one side, until that has lost them.
func (c *connection) watch(of *rail, side []*stream, gone *bool, lost func(error)) {
	if *gone {
		return
	}
	w := of.process.world
	for _, s := range side {
		if s.keepAlive() {
			lost(fmt.Errorf("no answer for %v", 3*w.swarm.keepAlive))
			return
		}
	}
	w.after(w.swarm.keepAlive, of.process, func() { c.watch(of, side, gone, lost) })
}

var errReset = errors.New("connection reset")

// sever loses whatever is on the way, and lets the sides learn of it some time
// later, or only by what they do not hear.
func (c *connection) sever(nearLearns, farLearns bool) {
	w := c.near.process.world
	c.dead = true
	for _, s := range slices.Concat(c.nearSide, c.farSide) {
		if w.mischief.IntN(3) > 0 {
			s.out.drop()
		}
	}
	if nearLearns {
		w.after(between(w.mischief, 0, w.swarm.keepAlive), c.near.process, func() { c.poster.Lost(errReset) })
	}
	if farLearns {
		w.after(between(w.mischief, 0, w.swarm.keepAlive), c.far.process, func() { c.server.Lost(errReset) })
	}
}

// alive reports whether both sides believe in it.
func (c *connection) alive() bool { return !c.nearLost && !c.farLost && !c.dead }

// busy reports whether something is on its way between two that live.
func (c *connection) busy() bool {
	return c.alive() && (c.server.Owes() || slices.ContainsFunc(slices.Concat(c.nearSide, c.farSide), func(s *stream) bool {
		return len(s.out.packets) > 0 || len(s.queue) > 0 || len(s.parts) > 0 || s.active != nil || s.lending != nil && s.lending.Held() > 0
	}))
}

// checkIdle is for when nothing runs: no end may hold on to anything.
func (c *connection) checkIdle() {
	if w := c.near.process.world; c.alive() {
		if n := c.poster.Held(); n != 0 {
			w.violate("tables return to zero", nil, "the posting side of connection %d still holds %d", c.serial, n)
		}
		if n := c.server.Held(); n != 0 {
			w.violate("tables return to zero", nil, "the serving side of connection %d still holds %d", c.serial, n)
		}
		for _, s := range slices.Concat(c.nearSide, c.farSide) {
			if s.lending != nil && s.lending.Held() > 0 {
				w.violate("tables return to zero", nil, "a stream of connection %d at %s still lends, awaits or takes %d parts", c.serial, s.process, s.lending.Held())
			}
			if !s.idle() {
				w.violate("tables return to zero", nil, "a stream of connection %d at %s still has %d parts to send, and expects %d",
					c.serial, s.process, len(s.parts), len(s.inbounds))
			}
		}
	}
}

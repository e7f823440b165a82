package storesim

import (
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/checksum"
)

// writer is the client of an Open, while it writes.
type writer struct {
	*call
	plan   *protocol.Plan
	owner  kv.Member
	mapped *grant // of one that stores to the arena by itself: nothing stops it
	rogue  bool   // it never commits, and writes until it cannot
	at     int
}

// write begins to write where a plan says.
func (c *call) write(plan *protocol.Plan) {
	w, p := c.on.world, c.on
	x := &writer{call: c, plan: plan, owner: c.asked}
	if x.owner == p.peer && w.Chance.IntN(2) == 0 {
		x.lend()
	}
	x.rogue = !w.Calm && w.plan.rogues && x.mapped == nil && w.Chance.IntN(4) == 0
	c.writer = x
	w.After(3*writeTimeout, p, func() {
		if !x.over {
			x.end(nil, protocol.ErrUnavailable)
		}
	})
	if !w.Calm && w.Chance.IntN(12) == 0 {
		w.tally.Vanished++
		w.Note("%v does not write its plan", p)
		c.end(nil, protocol.ErrUnavailable)
		if w.Chance.IntN(2) == 0 {
			x.give(true)
		}
		return
	}
	x.piece()
}

// lend has the writer store to the arena by itself, unless its time is over already.
func (x *writer) lend() {
	if g := x.on.grants[x.plan.Span.Grant]; g != nil {
		g.mapped, x.mapped = true, g
	}
}

// unlend: the writer stores no more.
func (x *writer) unlend() {
	if x.mapped != nil {
		x.mapped.mapped = false
	}
}

// piece writes a piece, or commits.
func (x *writer) piece() {
	w, p := x.on.world, x.on
	if x.mapped != nil && x.over {
		return
	}
	b := x.value.bytes[x.at:min(len(x.value.bytes), x.at+1+w.Chance.IntN(4000))]
	offset := x.plan.Offset + uint64(x.at)
	x.at += len(b)
	switch {
	case len(b) == 0 && x.rogue:
		x.at = 0 // once more, from the start
		w.After(w.Span(0, 50*kv.Millisecond), p, x.piece)
		return
	case len(b) == 0:
		x.give(false)
		return
	case x.mapped != nil:
		p.write(x.mapped.at, offset, b)
		w.After(w.pace(), p, x.piece)
		return
	}
	if x.rogue {
		b = make([]byte, len(b)) // of no value
	}
	to := p.reaches(x.owner)
	if to == nil {
		x.end(nil, protocol.ErrUnavailable)
		return
	}
	w.After(w.delay(to, p), to, func() {
		placed := to.place(p.peer, x.plan.Span.Grant, offset, b)
		w.After(w.delay(p, to)+w.pace(), p, func() {
			if placed {
				x.piece()
			} else if !x.over {
				x.end(nil, protocol.ErrUnavailable)
			}
		})
	})
}

// pace is how long a writer takes until its next piece.
func (w *world) pace() kv.Instant {
	if !w.Calm && w.plan.slow && w.Chance.IntN(10) == 0 {
		return w.Span(0, 3*kv.Second)
	}
	return w.Span(0, 3*kv.Millisecond)
}

// give commits what was written, or gives it up. What is on its way from before may
// still come: the same bytes once more.
func (x *writer) give(up bool) {
	p := x.on
	x.unlend()
	m := &protocol.Commit{Header: x.plan.Header, Epoch: x.plan.Epoch, KeyHash: x.plan.KeyHash, Abort: up}
	x.asked = x.owner
	if up {
		p.send(protocol.Send{To: x.owner, Request: p.world.number(), Message: m})
		return
	}
	m.Summed, m.Checksum = true, checksum.OfSums(checksum.AppendSums(nil, x.value.bytes))
	x.ask(m)
	if w := p.world; x.mapped == nil && w.Chance.IntN(3) == 0 {
		if to := p.reaches(x.owner); to != nil {
			w.After(w.delay(to, p), to, func() { to.place(p.peer, x.plan.Span.Grant, x.plan.Offset, x.value.bytes) })
		}
	}
}

// committed takes the answer to Commit.
func (c *call) committed(m protocol.Message) {
	r, is := m.(*protocol.Reply)
	if !is {
		c.on.world.Violate("messages are understood", "%T answers a commit", m)
		return
	}
	c.end(nil, r.Problem.Err())
}

// tooLate: an answer comes to a client that has given up. A plan is given back, or
// not.
func (c *call) tooLate(m protocol.Message) {
	plan, is := m.(*protocol.Plan)
	if w := c.on.world; is && c.writer == nil && w.Chance.IntN(2) == 0 {
		w.tally.Late++
		x := &writer{call: c, plan: plan, owner: c.asked}
		x.give(true)
	}
}

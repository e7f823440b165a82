package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/fabric/session"
	"meridian/mrdn"
)

// connection is one life of a link: its streams, and the machine that knows
// what is posted on them.
type connection struct {
	link    *link
	streams []*stream
	wait    sync.WaitGroup
	stopped chan struct{}

	mu         sync.Mutex // protects the rest
	machine    *session.Outgoing
	posted     map[mrdn.ID]*posted
	notices    map[mrdn.ID]chan error
	nextHandle uint32
	nextStream int
	gone       error
}

// posted is a transfer that runs here.
type posted struct {
	transfer *fabric.Transfer
	prepared *fabric.Prepared
	notice   []byte // sent when a read has arrived
}

func newConnection(l *link) *connection {
	return &connection{
		link: l, machine: session.NewOutgoing(l.fabric.options.MaxTransfers), stopped: make(chan struct{}),
		posted: make(map[mrdn.ID]*posted), notices: make(map[mrdn.ID]chan error),
	}
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
		case now := <-ticker.C:
			for _, s := range c.streams {
				if s.keepAlive(now) {
					c.lost(fmt.Errorf("no answer for %v", 3*s.options.KeepAlive))
				}
			}
		}
	}
}

// abandon closes streams that never started.
func (c *connection) abandon() {
	for _, s := range c.streams {
		s.conn.Close()
	}
}

func (c *connection) post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if running, again := c.posted[o.ID]; again {
		return running.transfer, nil
	}
	if c.gone != nil {
		return nil, fmt.Errorf("%w: %w", fabric.ErrPeerGone, c.gone)
	}
	cut := p.Plan.(*plan)
	follow := p.Op == fabric.Read && o.Notify
	if err := c.machine.Post(o.ID, p.Op, uint16(len(cut.parts)), follow); err != nil {
		return nil, err
	}
	t, err := fabric.NewTransfer(ctx, p, o.ID, func(cause error) { c.stop(o.ID, cause) })
	if err != nil {
		c.carryOut(c.machine.Failed(o.ID, err))
		return nil, err
	}
	c.posted[o.ID] = &posted{transfer: t, prepared: p, notice: o.Notification}
	// Under mu, so that a fence either sees this transfer or is seen by it.
	if err := c.link.fabric.regions.Current(p.Local); err != nil {
		c.carryOut(c.machine.Failed(o.ID, err))
	}
	for i := range cut.parts {
		if !c.machine.Running(o.ID) {
			break // an earlier part failed
		}
		c.postPart(p, &cut.parts[i], uint16(i), uint16(len(cut.parts)), o)
	}
	return t, nil
}

func (c *connection) postPart(p *fabric.Prepared, part *plannedPart, index, count uint16, o fabric.PostOptions) {
	c.nextHandle++
	s := c.streams[c.nextStream%len(c.streams)]
	c.nextStream++
	begin := mrdn.Begin{
		Handle: c.nextHandle, ID: o.ID, Write: p.Op == fabric.Write, Part: index, Parts: count, Bytes: part.bytes, List: part.list,
	}
	if p.Op == fabric.Write && o.Notify && index == 0 {
		begin.Notify, begin.Notification = true, o.Notification
	}
	of := partOf{id: o.ID, part: index, bound: p.Local}
	if p.Op == fabric.Read {
		effects, _ := c.machine.Leaving(o.ID)
		c.carryOut(effects)
		if part.bytes == 0 {
			// Nothing will come: there is nothing to ask for.
			c.carryOut(append(c.machine.Left(o.ID), c.machine.Arrived(o.ID)...))
			return
		}
		s.expect(&inbound{partOf: of, handle: begin.Handle, walk: part.local})
		s.send(begin.Append(nil))
		c.carryOut(c.machine.Left(o.ID))
		return
	}
	out := &outbound{partOf: of, handle: begin.Handle, walk: part.local, begin: begin.Append(nil)}
	sent, err := s.post(out)
	if err != nil {
		c.carryOut(c.machine.Failed(o.ID, err))
	} else if sent {
		effects, _ := c.machine.Leaving(o.ID)
		c.carryOut(append(effects, c.machine.Left(o.ID)...))
	}
}

// carryOut does what the machine asks. mu is held.
func (c *connection) carryOut(effects []session.Effect) {
	for _, e := range effects {
		switch e.Kind {
		case session.Progress:
			if p := c.posted[e.ID]; p != nil {
				p.transfer.Advance(e.State)
			}
		case session.Quiet:
			for _, s := range c.streams {
				s.quiet(func(p partOf) bool { return p.id == e.ID })
			}
		case session.SendCancel:
			// On every stream, so that it stays behind the parts it is about.
			for _, s := range c.streams {
				s.send(mrdn.Cancel{ID: e.ID}.Append(nil))
			}
		case session.SendNotice:
			if p := c.posted[e.ID]; p != nil {
				c.streams[0].send(mrdn.Notice{ID: e.ID, Payload: p.notice}.Append(nil))
			}
		case session.Ended:
			if p := c.posted[e.ID]; p != nil {
				delete(c.posted, e.ID)
				p.transfer.Finish(e.State, e.Err)
			}
		}
	}
}

func (c *connection) stop(id mrdn.ID, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.carryOut(c.machine.Stop(id, cause))
}

func (c *connection) fence(region uint64, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.posted {
		if p.prepared.Local.Touches(region) {
			c.carryOut(c.machine.Failed(id, cause))
		}
	}
}

// notify sends a notification, once what was posted before it has ended, and
// waits for the peer to take it.
func (c *connection) notify(ctx context.Context, id mrdn.ID, payload []byte) error {
	for _, t := range c.running() {
		select {
		case <-t.Done():
		case <-ctx.Done():
			return fmt.Errorf("fabric: waiting for what was posted before notification %s: %w", id, ctx.Err())
		}
	}
	answer := make(chan error, 1)
	c.mu.Lock()
	if c.gone != nil {
		c.mu.Unlock()
		return fmt.Errorf("%w: %w", fabric.ErrPeerGone, c.gone)
	}
	if len(c.notices) >= c.link.fabric.options.MaxTransfers || c.notices[id] != nil {
		c.mu.Unlock()
		return fmt.Errorf("%w: too many notifications wait", fabric.ErrBusy)
	}
	c.notices[id] = answer
	c.streams[0].send(mrdn.Notice{ID: id, Payload: payload}.Append(nil))
	c.mu.Unlock()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.notices, id)
		c.mu.Unlock()
		return fmt.Errorf("fabric: waiting for the peer to take notification %s: %w", id, ctx.Err())
	}
}

func (c *connection) running() []*fabric.Transfer {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*fabric.Transfer, 0, len(c.posted))
	for _, p := range c.posted {
		all = append(all, p.transfer)
	}
	return all
}

// frame hears the peer's answers.
func (c *connection) frame(_ *stream, f mrdn.LinkFrame, body []byte) error {
	if f != mrdn.AckFrame {
		return fmt.Errorf("%w: type %d from the serving side", mrdn.ErrLinkFrame, f)
	}
	ack, err := mrdn.ParseAck(body)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.notices[ack.ID]; answer != nil && ack.Part == mrdn.NoticeAck {
		delete(c.notices, ack.ID)
		answer <- fabric.FromCode(ack.Code, ack.Message)
		return nil
	}
	c.carryOut(c.machine.Acked(ack))
	return nil
}

func (c *connection) arrived(_ *stream, p *inbound, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.carryOut(c.machine.Failed(p.id, err))
		return
	}
	c.carryOut(c.machine.Arrived(p.id))
}

func (c *connection) leaving(p *outbound) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	effects, running := c.machine.Leaving(p.id)
	c.carryOut(effects)
	return running
}

func (c *connection) left(p *outbound, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.carryOut(c.machine.Failed(p.id, err))
		return
	}
	c.carryOut(c.machine.Left(p.id))
}

// lost ends the connection; the first reason counts.
func (c *connection) lost(err error) {
	c.mu.Lock()
	if c.gone != nil {
		c.mu.Unlock()
		return
	}
	c.gone = err
	close(c.stopped)
	c.carryOut(c.machine.Lost(err))
	for id, answer := range c.notices {
		delete(c.notices, id)
		answer <- fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	for _, s := range c.streams {
		s.close()
	}
	c.mu.Unlock()
	if !errors.Is(err, fabric.ErrClosed) {
		c.link.drop(c, err)
	}
}

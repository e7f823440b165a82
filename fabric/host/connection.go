package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"meridian/fabric"
	"meridian/fabric/session"
	"meridian/kv"
	"meridian/mrdn"
)

// connection is the posting side of one life of a link.
type connection struct {
	link    *peerLink
	wire    *wire
	shelf   shelf
	stopped chan struct{} // closed when nothing of the wire runs

	mu         sync.Mutex // protects the rest
	machine    *session.Outgoing
	lender     lender
	posted     map[kv.ID]*posted
	notices    map[kv.ID]chan error
	asked      map[mrdn.Borrow]bool
	nextHandle uint32
	gone       error
}

// posted is a transfer that runs here.
type posted struct {
	transfer *fabric.Transfer
	prepared *fabric.Prepared
	notice   []byte // sent when a read has arrived
	flag     flag   // of a write
	grant    kv.ID
	asked    bool // whether a read may be
	allowed  bool
	job      *job // of a read, once it has all it needs
}

func newConnection(l *peerLink, conn *net.UnixConn) (*connection, error) {
	c := &connection{
		link: l, stopped: make(chan struct{}), machine: session.NewOutgoing(l.fabric.options.MaxTransfers),
		lender: newLender(&l.fabric.flags), posted: make(map[kv.ID]*posted),
		notices: make(map[kv.ID]chan error), asked: make(map[mrdn.Borrow]bool),
	}
	var err error
	if c.wire, err = newWire(conn, l.fabric.options.KeepAlive, c); err != nil {
		return nil, err
	}
	if err := l.fabric.showBoard(c.wire); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *connection) start() {
	c.link.fabric.wait.Go(func() {
		defer close(c.stopped)
		c.wire.run()
	})
}

// abandon ends what never started.
func (c *connection) abandon() {
	c.wire.close()
	close(c.stopped)
}

func (c *connection) post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	t, ready, err := c.admit(ctx, p, o)
	if ready != nil {
		c.link.fabric.pool.do(ready)
	}
	return t, err
}

// admit posts, and returns the job of a read that can start at once.
func (c *connection) admit(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, *job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if running, again := c.posted[o.ID]; again {
		return running.transfer, nil, nil
	}
	if c.gone != nil {
		return nil, nil, fmt.Errorf("%w: %w", fabric.ErrPeerGone, c.gone)
	}
	if err := c.machine.Post(o.ID, p.Op, 1, p.Op == fabric.Read && o.Notify); err != nil {
		return nil, nil, err
	}
	t, err := fabric.NewTransfer(ctx, fabric.SystemClock, p, o.ID, func(cause error) { c.stop(o.ID, cause) })
	if err != nil {
		c.carryOut(c.machine.Failed(o.ID, err))
		return nil, nil, err
	}
	post := &posted{transfer: t, prepared: p, grant: o.Grant}
	c.posted[o.ID] = post
	// Under mu, so that a fence either sees this transfer or is seen by it.
	if err := c.link.fabric.regions.Current(p.Local); err != nil {
		c.carryOut(c.machine.Failed(o.ID, err))
		return t, nil, nil
	}
	if p.Op == fabric.Read {
		post.notice = bytes.Clone(o.Notification) // the caller's buffer is his again
		return t, c.startRead(o.ID, post), nil
	}
	if err := c.startWrite(post, o); err != nil {
		c.carryOut(c.machine.Failed(o.ID, err))
	}
	return t, nil, nil
}

// startRead makes the job of a read, or asks for what it lacks.
func (c *connection) startRead(id kv.ID, post *posted) *job {
	remote := post.prepared.Remote
	if post.prepared.Bytes == 0 {
		effects, _ := c.machine.Leaving(id)
		c.carryOut(append(append(effects, c.machine.Left(id)...), c.machine.Arrived(id)...))
		return nil
	}
	loans, missing, err := c.shelf.take(remote)
	if err != nil {
		c.carryOut(c.machine.Failed(id, err))
		return nil
	}
	if !post.allowed && !c.shelf.isOpen() {
		c.shelf.release(loans)
		if !post.asked {
			post.asked = true
			c.ask(id, post)
		}
		return nil
	}
	for _, name := range missing {
		if ask := (mrdn.Borrow{Region: name.Region, Epoch: name.Epoch, Grant: post.grant}); !c.asked[ask] {
			c.asked[ask] = true
			c.wire.send(ask.Append(nil))
		}
	}
	if len(missing) > 0 {
		return nil
	}
	post.job = &job{
		id: id, shelf: &c.shelf, loans: loans, to: post.prepared.Local, bytes: post.prepared.Bytes,
		fromWalk: remote.Walk(), toWalk: post.prepared.Local.List.Walk(), compare: !c.link.fabric.options.NoChecksums,
		begin: func() bool { return c.leaving(id) }, ended: func(err error) { c.arrived(id, err) },
	}
	return post.job
}

// ask asks the peer whether a read may be.
func (c *connection) ask(id kv.ID, post *posted) {
	cut := post.prepared.Plan.(*plan)
	if err := cut.tooLong(); err != nil {
		c.carryOut(c.machine.Failed(id, err))
		return
	}
	c.wire.send(mrdn.Ask{ID: id, Grant: post.grant, List: cut.to}.Append(nil))
}

// startWrite lends what the peer lacks and asks it to copy.
func (c *connection) startWrite(post *posted, o fabric.PostOptions) error {
	local := post.prepared.Local
	var p parcel
	for i := range local.List {
		if c.lender.holds(local.List[i].Region) {
			continue
		}
		if err := c.lender.lend(&p, local.List[i], kv.ID{}, local.Section(i)); err != nil {
			closeGifts(p.gifts)
			return err
		}
	}
	var err error
	if post.flag, err = c.link.fabric.board.raise(); err != nil {
		closeGifts(p.gifts)
		return err
	}
	c.nextHandle++
	cut := post.prepared.Plan.(*plan)
	p.frames = mrdn.Source{Handle: c.nextHandle, Cell: post.flag.cell, Turn: post.flag.turn, List: cut.from}.Append(p.frames)
	p.frames = mrdn.Begin{
		Handle: c.nextHandle, ID: o.ID, Grant: o.Grant, Write: true, Parts: 1, Bytes: post.prepared.Bytes, List: cut.to,
		Notify: o.Notify, Notification: o.Notification,
	}.Append(p.frames)
	effects, _ := c.machine.Leaving(o.ID)
	c.wire.sendWith(p.frames, p.gifts)
	c.carryOut(append(effects, c.machine.Left(o.ID)...))
	return nil
}

// carryOut does what the machine asks. mu is held.
func (c *connection) carryOut(effects []session.Effect) {
	for _, e := range effects {
		p := c.posted[e.ID]
		if p == nil {
			continue
		}
		switch e.Kind {
		case session.Progress:
			p.transfer.Advance(e.State)
		case session.Quiet:
			c.quiet(p)
		case session.SendCancel:
			if p.prepared.Op == fabric.Write { // the peer has no part in a read
				c.wire.send(mrdn.Cancel{ID: e.ID}.Append(nil))
			}
		case session.SendNotice:
			c.wire.send(mrdn.Notice{ID: e.ID, Payload: p.notice}.Append(nil))
		case session.Ended:
			delete(c.posted, e.ID)
			c.link.fabric.board.lower(p.flag)
			p.transfer.Finish(e.State, e.Err)
		}
	}
}

// quiet makes the local memory of a transfer its owner's alone.
func (c *connection) quiet(p *posted) {
	if p.job != nil {
		p.job.quiet()
	}
	if down := p.flag; down.turn != 0 {
		p.flag = flag{}
		c.link.fabric.board.lower(down)
		c.shelf.settle(down)
	}
}

func (c *connection) stop(id kv.ID, cause error) {
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
	if recall := c.lender.recall(region); recall != nil {
		c.wire.send(recall)
	}
}

func (c *connection) settle(f flag) { c.shelf.settle(f) }

func (c *connection) hangUp() { _ = c.wire.conn.CloseWrite() }

func (c *connection) leaving(id kv.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	effects, running := c.machine.Leaving(id)
	c.carryOut(append(effects, c.machine.Left(id)...))
	return running
}

// arrived ends a read. Flags of a peer that died fly for ever, so it is asked
// for first: its memory may be another's by now.
func (c *connection) arrived(id kv.ID, err error) {
	if c.wire.hungUp() {
		err = errors.Join(fabric.ErrPeerGone, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.carryOut(c.machine.Failed(id, err))
		return
	}
	c.carryOut(c.machine.Arrived(id))
}

// notify sends a notification, once what was posted before it has ended, and
// waits for the peer to take it.
func (c *connection) notify(ctx context.Context, id kv.ID, payload []byte) error {
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
	c.wire.send(mrdn.Notice{ID: id, Payload: payload}.Append(nil))
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

// isGone is why the connection is lost, or nil. Whoever waited for a transfer knows
// of its end before the link does, and may be back by then.
func (c *connection) isGone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// lost ends the connection; the first reason counts.
func (c *connection) lost(err error) {
	c.mu.Lock()
	if c.gone != nil {
		c.mu.Unlock()
		return
	}
	c.gone = err
	c.carryOut(c.machine.Lost(err))
	for id, answer := range c.notices {
		delete(c.notices, id)
		answer <- fmt.Errorf("%w: %w", fabric.ErrPeerGone, err)
	}
	c.mu.Unlock()
	c.wire.close()
	c.shelf.close()
	c.link.fabric.forget(c)
	c.link.drop(c, err)
}

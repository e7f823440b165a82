package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mem"
)

// fault is one way in which the toy breaks the contract.
type fault string

// toyNetwork is where toys find each other, and what holds them up.
type toyNetwork struct {
	fault fault
	slow  time.Duration // between two pieces, so that a transfer is met in the middle

	mu   sync.Mutex // protects the rest
	toys map[string]*toy
	gate chan struct{} // closed: transfers may go on
}

func newToyNetwork(f fault) *toyNetwork {
	open := make(chan struct{})
	close(open)
	return &toyNetwork{fault: f, toys: make(map[string]*toy), gate: open}
}

func (n *toyNetwork) stall() (resume func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	gate := make(chan struct{})
	n.gate = gate
	return func() { close(gate) }
}

func (n *toyNetwork) gated() chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gate
}

// toy is a fabric of goroutines, one per transfer, with a fault.
type toy struct {
	network *toyNetwork
	self    fabric.Peer
	events  fabric.Events
	guard   fabric.Guard
	regions fabric.Regions
	wait    sync.WaitGroup

	mu     sync.Mutex // protects the rest
	closed bool
	ops    map[*toyOp]struct{} // that touch memory here
	links  map[*toyLink]struct{}
}

func (n *toyNetwork) open(self fabric.Peer, events fabric.Events, guard fabric.Guard) *toy {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &toy{network: n, self: self, events: events, guard: guard, ops: make(map[*toyOp]struct{}), links: make(map[*toyLink]struct{})}
	f.self.Address = []byte(self.Name)
	n.toys[self.Name] = f
	return f
}

func (f *toy) has(x fault) bool { return f.network.fault == x }

func (f *toy) Name() string { return "toy" }

func (f *toy) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{Local: true, Read: true, Write: true, Notify: true, Kinds: []mem.Kind{mem.DRAM}}
}

func (f *toy) Address() []byte { return f.self.Address }

func (f *toy) Register(r fabric.Region) error { return f.regions.Add(r) }

func (f *toy) Deregister(_ context.Context, id uint64) error {
	if err := f.regions.Remove(id); err != nil {
		return err
	}
	if f.has("deregister only forgets the name") {
		return nil
	}
	cause := fmt.Errorf("%w: deregistered", fabric.ErrUnknownRegion)
	f.stop(cause, !f.has("deregister does not wait"), func(o *toyOp) bool { return o.touches(f, id) })
	return nil
}

// Revoke stops what runs here under a grant.
func (f *toy) Revoke(_ context.Context, grant kv.ID) error {
	f.stop(fabric.ErrGrantRevoked, true, func(o *toyOp) bool {
		spared := o.p.Op == fabric.Read && f.has("revoke stops only writes") || o.p.Op == fabric.Write && f.has("revoke stops only reads")
		return o.link.far == f && o.o.Grant == grant && !spared
	})
	return nil
}

// stop ends operations that touch memory here, and waits for them.
func (f *toy) stop(cause error, wait bool, match func(*toyOp) bool) {
	f.mu.Lock()
	var found []*toyOp
	for o := range f.ops {
		if match(o) {
			found = append(found, o)
		}
	}
	f.mu.Unlock()
	for _, o := range found {
		o.stop(cause)
	}
	for _, o := range found {
		if wait {
			<-o.quiet
		}
	}
}

func (f *toy) Connect(_ context.Context, p fabric.Peer) (fabric.Link, error) {
	f.network.mu.Lock()
	far := f.network.toys[string(p.Address)]
	f.network.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, fabric.ErrClosed
	case far == nil:
		return nil, fabric.ErrPeerGone
	case far.self.Incarnation != p.Incarnation && !f.has("takes any incarnation"):
		return nil, fabric.ErrStalePeer
	}
	l := &toyLink{near: f, far: far, peer: far.self, posts: make(map[kv.ID]*toyOp)}
	f.links[l] = struct{}{}
	return l, nil
}

func (f *toy) Close(context.Context) error {
	f.network.mu.Lock()
	delete(f.network.toys, f.self.Name)
	others := make([]*toy, 0, len(f.network.toys))
	for _, o := range f.network.toys {
		others = append(others, o)
	}
	f.network.mu.Unlock()
	f.mu.Lock()
	again := f.closed
	f.closed = true
	links := make([]*toyLink, 0, len(f.links))
	for l := range f.links {
		links = append(links, l)
	}
	f.mu.Unlock()
	for _, l := range links {
		l.end(fabric.ErrClosed)
	}
	for _, o := range others {
		o.lose(f)
	}
	f.stop(fabric.ErrPeerGone, true, func(*toyOp) bool { return true })
	f.wait.Wait()
	if f.has("leaves a goroutine") && !again {
		go func() { time.Sleep(5 * time.Second) }()
	}
	if f.has("notifies after Close") && !again {
		time.AfterFunc(time.Millisecond, func() { _, _ = f.events.Notified(fabric.Notification{}) })
	}
	return nil
}

// lose ends links to a toy that is gone.
func (f *toy) lose(gone *toy) {
	f.mu.Lock()
	var lost []*toyLink
	for l := range f.links {
		if l.far == gone {
			lost = append(lost, l)
		}
	}
	f.mu.Unlock()
	cause := fabric.ErrPeerGone
	if f.has("does not say why it ended") {
		cause = errors.New("something broke")
	}
	for _, l := range lost {
		if f.has("does not notice a death") {
			return
		}
		l.end(cause)
		if !f.has("does not tell of a lost link") {
			f.events.LinkLost(gone.self, cause)
		}
	}
}

// toyLink remembers every post: idempotence the easy way.
type toyLink struct {
	near, far *toy
	peer      fabric.Peer

	mu    sync.Mutex // protects the rest
	ended error
	posts map[kv.ID]*toyOp
	order []*toyOp
}

func (l *toyLink) Peer() fabric.Peer { return l.peer }

func (l *toyLink) Prepare(op fabric.Op, local, remote fabric.List) (*fabric.Prepared, error) {
	p, err := fabric.NewPrepared(&l.near.regions, op, local, remote)
	switch {
	case errors.Is(err, fabric.ErrLengths) && l.near.has("ignores lengths"),
		errors.Is(err, fabric.ErrOverlap) && l.near.has("ignores overlaps"),
		errors.Is(err, mem.ErrBounds) && l.near.has("ignores local bounds"):
		return fabric.NewPrepared(&l.near.regions, op, nil, nil)
	}
	return p, err
}

func (l *toyLink) Post(ctx context.Context, p *fabric.Prepared, o fabric.PostOptions) (*fabric.Transfer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return nil, l.ended
	}
	if op := l.posts[o.ID]; op != nil && !l.near.has("repeats what is posted again") {
		return op.transfer, nil
	}
	if l.near.has("refuses without a name") && len(l.posts) > 100 {
		return nil, errors.New("no")
	}
	op := &toyOp{link: l, p: p, o: o, stopped: make(chan struct{}), quiet: make(chan struct{})}
	op.o.Notification = bytes.Clone(o.Notification)
	if l.near.has("ignores deadlines") {
		ctx = context.Background()
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	var err error
	if op.transfer, err = fabric.NewTransfer(ctx, fabric.SystemClock, p, o.ID, op.stop); err != nil {
		return nil, err
	}
	l.near.mu.Lock()
	l.near.ops[op] = struct{}{}
	l.near.mu.Unlock()
	l.posts[o.ID] = op
	l.order = append(l.order, op)
	l.near.wait.Go(op.run)
	return op.transfer, nil
}

func (l *toyLink) Notify(ctx context.Context, id kv.ID, payload []byte) error {
	l.mu.Lock()
	before := l.order
	if l.near.has("hurries Notify") {
		before = nil
	}
	l.mu.Unlock()
	for _, op := range before {
		if err := op.transfer.Await(ctx); ctx.Err() != nil {
			return err
		}
	}
	t, err := fabric.PostNotification(ctx, l, id, payload)
	if err != nil {
		return err
	}
	return t.Await(ctx)
}

func (l *toyLink) Estimate(_ fabric.Op, bytes, _ uint64) time.Duration {
	if l.near.has("estimates nothing") {
		return 0
	}
	return time.Duration(1 + bytes)
}

func (l *toyLink) Close(context.Context) error {
	l.end(fabric.ErrClosed)
	return nil
}

func (l *toyLink) end(cause error) {
	l.mu.Lock()
	if l.ended == nil {
		l.ended = cause
	}
	l.mu.Unlock()
	l.near.mu.Lock()
	delete(l.near.links, l)
	l.near.mu.Unlock()
	l.near.stop(cause, true, func(o *toyOp) bool { return o.link == l })
}

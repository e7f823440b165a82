package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// NewID makes a transfer id.
func NewID() (id kv.ID) {
	rand.Read(id[:])
	return id
}

// newID makes an id for this agent's own use.
func (a *Agent) newID() (id kv.ID) {
	if _, err := io.ReadFull(a.options.Random, id[:]); err != nil {
		panic(fmt.Sprintf("agent: ids cannot be made: %v", err))
	}
	return id
}

// Side is some descriptors of a list: those at Indices, or all.
type Side struct {
	List    *List
	Indices []int32
}

// Request is a transfer that was prepared once and can be posted many times. It
// holds its local memory until Release.
type Request struct {
	agent   *Agent
	peer    *Peer
	op      fabric.Op
	bytes   uint64
	pieces  uint64
	local   fabric.List
	remote  fabric.List
	choices []Choice

	preparing sync.Mutex // held while a fabric prepares; comes before mu

	mu       sync.Mutex // protects the rest; held across nothing that waits
	prepared map[string]*fabric.Prepared
	posts    int // that have not ended
	released bool
}

// Prepare makes a request between this agent's memory and a peer's.
func (a *Agent) Prepare(op fabric.Op, local, remote Side) (*Request, error) {
	switch {
	case local.List == nil || remote.List == nil:
		return nil, errors.New("agent: a request needs a list on each side")
	case local.List.peer != nil:
		return nil, errors.New("agent: the local list is of a peer's memory")
	case remote.List.peer == nil:
		return nil, errors.New("agent: the remote list is of this agent's memory; load the agent's own metadata to loop back")
	case local.List.agent != a || remote.List.agent != a:
		return nil, errors.New("agent: a list was made by another agent; lists are good for the agent that made them")
	}
	r := &Request{agent: a, peer: remote.List.peer, op: op, prepared: make(map[string]*fabric.Prepared)}
	var err error
	if r.local, err = local.List.pick(local.Indices); err != nil {
		return nil, fmt.Errorf("local list: %w", err)
	}
	if r.remote, err = remote.List.pick(remote.Indices); err != nil {
		return nil, fmt.Errorf("remote list: %w", err)
	}
	r.bytes, r.pieces = r.local.Bytes(), max(r.local.Pieces(), r.remote.Pieces())
	if r.remote.Bytes() != r.bytes {
		return nil, fmt.Errorf("%w: local %d bytes, remote %d", fabric.ErrLengths, r.bytes, r.remote.Bytes())
	}
	r.choices = choose(op, local.List.kinds, remote.List.kinds, r.candidates(local.List, remote.List))
	if r.choices[0].Refused != "" {
		return nil, fmt.Errorf("%w: no fabric can %v between these lists (%s)", fabric.ErrUnsupported, op, describe(r.choices))
	}
	return r, nil
}

func (r *Request) candidates(local, remote *List) []candidate {
	var all []candidate
	for _, f := range r.agent.fabrics {
		// A fabric without an address, as to disks, reaches this agent itself.
		capabilities := f.Capabilities()
		own := capabilities.Local && r.peer.Incarnation == r.agent.incarnation
		c := candidate{
			name: f.Name(), capabilities: capabilities, peerHasIt: own || r.peer.address(f.Name()) != nil,
			local: local.reachedBy(f.Name()), remote: remote.reachedBy(f.Name()),
		}
		if rate := r.peer.speed(measure{f.Name(), r.op}); rate > 0 {
			c.expected, c.measured = time.Duration(float64(r.bytes)/rate), true
		}
		all = append(all, c)
	}
	return all
}

// Estimate is how long a post would take on the first fabric that connects.
func (r *Request) Estimate(ctx context.Context) (time.Duration, error) {
	var errs []error
	for _, c := range r.choices {
		if c.Refused != "" {
			break // and so are all that follow
		}
		if c.Measured {
			return c.Expected, nil
		}
		l, err := r.peer.link(ctx, r.agent.fabric(c.Fabric))
		if err == nil {
			return l.Estimate(r.op, r.bytes, r.pieces), nil
		}
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}

// PostOptions belong to one post.
type PostOptions struct {
	// ID makes a post repeatable: posting the same request under it again
	// returns the same transfer, unless Post refused it. Zero takes a new one.
	ID kv.ID
	// Grant is what the peer's agent gave to open its memory to this transfer.
	Grant kv.ID
	// PartOf is what the transfer is a part of, such as a hand-off, for its record.
	PartOf kv.ID
	// Notification is delivered at the peer exactly once, after the data is in
	// place. Nil sends none. The bytes are the caller's again when Post returns.
	Notification []byte
	// Sums, where given, are those of a read's destination, taken as it is placed, or,
	// where they are known, of a write's source.
	Sums *fabric.Sums
}

// Post starts the transfer and returns at once, or as soon as the peer is
// connected if this is its first link. ctx's deadline is the transfer's. When
// a fabric fails before anything moved, then or later, the next one is tried.
func (r *Request) Post(ctx context.Context, o PostOptions) (*Transfer, error) {
	if o.ID == (kv.ID{}) {
		o.ID = r.agent.newID()
	}
	if err := r.use(); err != nil {
		return nil, err
	}
	t, ctx := newTransfer(ctx, r, o)
	if standing := r.agent.log.add(t); standing != t {
		r.unuse()
		t.stop(nil)
		return standing.repeated(r)
	}
	r.agent.countPosted()
	if err := t.tryFabrics(ctx, r); err != nil {
		r.agent.log.refuse(t)
		return nil, err
	}
	return t, nil
}

// ready connects and prepares: all that comes before a post, and may wait.
func (r *Request) ready(ctx context.Context, name string) (fabric.Link, *fabric.Prepared, error) {
	l, err := r.peer.link(ctx, r.agent.fabric(name))
	if err != nil {
		return nil, nil, err
	}
	r.preparing.Lock()
	defer r.preparing.Unlock()
	r.mu.Lock()
	p := r.prepared[name]
	r.mu.Unlock()
	if p != nil {
		return l, p, nil
	}
	if p, err = l.Prepare(r.op, r.local, r.remote); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released && r.posts == 0 { // the post that wanted it was cancelled meanwhile
		p.Release()
		return nil, nil, fabric.ErrReleased
	}
	r.prepared[name] = p
	return l, p, nil
}

// use keeps the memory for one more post.
func (r *Request) use() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return fabric.ErrReleased
	}
	r.posts++
	return nil
}

func (r *Request) unuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.posts--; r.posts == 0 && r.released {
		r.releasePrepared()
	}
}

// Release gives the local memory back as soon as the last post has ended. It
// may be called again.
func (r *Request) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released = true; r.posts == 0 {
		r.releasePrepared()
	}
}

// releasePrepared needs mu to be held.
func (r *Request) releasePrepared() {
	for _, p := range r.prepared {
		p.Release()
	}
}

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/fabric"
	"meridian/mrdn"
)

// NewID makes a transfer id.
func NewID() (id mrdn.ID) {
	rand.Read(id[:])
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
	agent  *Agent
	peer   *Peer
	op     fabric.Op
	bytes  uint64
	pieces uint64
	local  fabric.List
	remote fabric.List

	mu       sync.Mutex // protects the rest
	choices  []Choice
	prepared map[string]*fabric.Prepared
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
	r.choices = choose(op, local.List.kinds(), remote.List.kinds(), r.candidates(local.List, remote.List))
	if r.choices[0].Refused != "" {
		return nil, fmt.Errorf("%w: no fabric can %v between these lists (%s)", fabric.ErrUnsupported, op, describe(r.choices))
	}
	return r, nil
}

func (r *Request) candidates(local, remote *List) []candidate {
	here, there := local.reachable(), remote.reachable()
	r.peer.mu.Lock()
	defer r.peer.mu.Unlock()
	var all []candidate
	for _, f := range r.agent.fabrics {
		_, peerHas := r.peer.fabrics[f.Name()]
		c := candidate{
			name: f.Name(), capabilities: f.Capabilities(), peerHasIt: peerHas,
			local: here[f.Name()] || local.Len() == 0, remote: there[f.Name()] || remote.Len() == 0,
		}
		if rate := r.peer.measured[measure{f.Name(), r.op}]; rate > 0 {
			c.expected, c.measured = time.Duration(float64(r.bytes)/rate), true
		}
		all = append(all, c)
	}
	return all
}

// Estimate is how long a post would take on the fabric that would be used.
func (r *Request) Estimate(ctx context.Context) (time.Duration, error) {
	r.mu.Lock()
	first := r.choices[0]
	r.mu.Unlock()
	if first.Measured {
		return first.Expected, nil
	}
	l, err := r.peer.link(ctx, r.agent.fabric(first.Fabric))
	if err != nil {
		return 0, err
	}
	return l.Estimate(r.op, r.bytes, r.pieces), nil
}

func (a *Agent) fabric(name string) fabric.Fabric {
	for _, f := range a.fabrics {
		if f.Name() == name {
			return f
		}
	}
	return nil
}

// PostOptions belong to one post.
type PostOptions struct {
	// ID makes a post repeatable: posting the same one again returns the same
	// transfer. Zero takes a new one.
	ID mrdn.ID
	// Notification is delivered at the peer exactly once, after the data is in
	// place. Nil sends none.
	Notification []byte
}

// Post starts the transfer and returns at once, or as soon as the peer is
// connected if this is the first contact. ctx's deadline is the transfer's. When
// a fabric fails before anything moved, the next one is tried.
func (r *Request) Post(ctx context.Context, o PostOptions) (*Transfer, error) {
	if o.ID == (mrdn.ID{}) {
		o.ID = NewID()
	}
	if t := r.agent.ledger.transfer(o.ID); t != nil {
		return t, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return nil, fabric.ErrReleased
	}
	var errs []error
	for i := range r.choices {
		choice := &r.choices[i]
		if choice.Refused != "" {
			break
		}
		running, err := r.post(ctx, choice.Fabric, o)
		if err == nil {
			t := newTransfer(r, running, choice.Fabric)
			r.agent.begin(t)
			return t, nil
		}
		choice.Failed = err.Error()
		errs = append(errs, fmt.Errorf("%s: %w", choice.Fabric, err))
		if !mayFallBack(err) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (r *Request) post(ctx context.Context, name string, o PostOptions) (*fabric.Transfer, error) {
	l, err := r.peer.link(ctx, r.agent.fabric(name))
	if err != nil {
		return nil, err
	}
	p := r.prepared[name]
	if p == nil {
		if p, err = l.Prepare(r.op, r.local, r.remote); err != nil {
			return nil, err
		}
		r.prepared[name] = p
	}
	return l.Post(ctx, p, fabric.PostOptions{ID: o.ID, Notify: o.Notification != nil, Notification: o.Notification})
}

// mayFallBack: another fabric can help against what is wrong with this one, not
// against a request that is wrong everywhere.
func mayFallBack(err error) bool {
	for _, e := range []error{fabric.ErrPeerGone, fabric.ErrVersion, fabric.ErrUnsupported, fabric.ErrBusy, fabric.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Release gives the local memory back as soon as the last post has ended.
func (r *Request) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = true
	for _, p := range r.prepared {
		p.Release()
	}
}

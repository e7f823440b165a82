// Package inproc moves bytes between agents of one process, and is the plainest
// fabric there is: read it first to write another.
//
//	poster's worker                      peer's Fabric
//	   Run ───────── admit ────────────► binds the peer's list, counts what is served
//	   hash ► copy ► hash, 64 KiB a time   (Deregister and Close stop it)
//	   notify ─────────────────────────► Events.Notified
//	   Finish ◄───── dismiss ─────────── gives the memory back
//
// The poster of a transfer moves its bytes, in either direction, on one of its
// own workers. The peer's part is to say what may be touched and to take it
// back: a Stop is seen before the next piece of 64 KiB.
package inproc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/fabric/workers"
	"meridian/move/mem"
)

// Network is where fabrics find each other. An address is an agent's name.
type Network struct {
	mu      sync.Mutex // protects fabrics
	fabrics map[string]*Fabric
}

// NewNetwork makes an empty one.
func NewNetwork() *Network { return &Network{fabrics: make(map[string]*Fabric)} }

func (n *Network) join(f *Fabric) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fabrics[f.options.Agent] != nil {
		return fmt.Errorf("inproc: agent %q is open already", f.options.Agent)
	}
	n.fabrics[f.options.Agent] = f
	return nil
}

func (n *Network) leave(f *Fabric) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fabrics[f.options.Agent] == f {
		delete(n.fabrics, f.options.Agent)
	}
}

func (n *Network) find(address []byte) *Fabric {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fabrics[string(address)]
}

// Options configures Open.
type Options struct {
	// Network is where peers are found.
	Network *Network
	// Agent and Incarnation say who this is.
	Agent       string
	Incarnation kv.ID
	// Workers and MaxTransfers: see workers.Options.
	Workers, MaxTransfers int
	// NoChecksums is for measuring what they cost.
	NoChecksums bool
	// Guard decides what peers may touch; nil opens all that is registered.
	Guard  fabric.Guard
	Events fabric.Events
}

// Fabric is an open inproc fabric.
type Fabric struct {
	options Options
	regions fabric.Regions
	pool    *workers.Pool

	mu     sync.Mutex // protects the rest
	closed bool
	links  map[*link]struct{} // of which this is either end
	served map[*workers.Task]servedTransfer
}

// servedTransfer is what a peer's transfer touches here, and what lets it.
type servedTransfer struct {
	bound *fabric.Bound
	grant kv.ID
}

// Open joins the network.
func Open(_ context.Context, o Options) (*Fabric, error) {
	if o.Network == nil || o.Agent == "" || o.Events == nil {
		return nil, errors.New("inproc: Options needs a Network, an Agent and Events")
	}
	pool, err := workers.Open(workers.Options{Workers: o.Workers, MaxTransfers: o.MaxTransfers})
	if err != nil {
		return nil, err
	}
	f := &Fabric{options: o, pool: pool, links: make(map[*link]struct{}), served: make(map[*workers.Task]servedTransfer)}
	if err := o.Network.join(f); err != nil {
		return nil, errors.Join(err, pool.Close(context.Background()))
	}
	return f, nil
}

// Name is "inproc".
func (f *Fabric) Name() string { return "inproc" }

// Capabilities says what it can do.
func (f *Fabric) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{
		Local: true, Read: true, Write: true, Notify: true, Kinds: []mem.Kind{mem.DRAM, mem.Borrowed, mem.File},
	}
}

// Address is the agent's name.
func (f *Fabric) Address() []byte { return []byte(f.options.Agent) }

// Register makes a region reachable.
func (f *Fabric) Register(r fabric.Region) error { return f.regions.Add(r) }

// Deregister fences a region.
func (f *Fabric) Deregister(ctx context.Context, id uint64) error {
	if err := f.regions.Remove(id); err != nil {
		return err
	}
	cause := fmt.Errorf("%w: region %d was deregistered", fabric.ErrUnknownRegion, id)
	own := f.pool.Fence(ctx, cause, func(t *workers.Task) bool { return t.Prepared.Local.Touches(id) })
	served := workers.StopAll(ctx, cause, f.findServed(func(g servedTransfer) bool { return g.bound.Touches(id) }))
	return errors.Join(own, served)
}

// Revoke stops everything that runs under a grant.
func (f *Fabric) Revoke(ctx context.Context, grant kv.ID) error {
	return workers.StopAll(ctx, fabric.ErrGrantRevoked, f.findServed(func(g servedTransfer) bool { return g.grant == grant }))
}

// admit lets a transfer that from posted touch memory here, until dismiss.
func (f *Fabric) admit(t *workers.Task, from *Fabric, grant kv.ID) (*fabric.Bound, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed && from == f {
		return nil, fabric.ErrClosed
	}
	if f.closed {
		return nil, fabric.ErrPeerGone
	}
	if f.options.Guard != nil {
		err := f.options.Guard.Admit(fabric.Access{
			Peer: from.options.Agent, Incarnation: from.options.Incarnation, Grant: grant, Op: t.Prepared.Op, List: t.Prepared.Remote,
		})
		if err != nil {
			return nil, err
		}
	}
	b, err := f.regions.BindAs(t.Prepared.Remote, t.Prepared.Op == fabric.Write)
	if err != nil {
		return nil, err
	}
	f.served[t] = servedTransfer{b, grant}
	return b, nil
}

func (f *Fabric) dismiss(t *workers.Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served[t].bound.Release()
	delete(f.served, t)
}

func (f *Fabric) findServed(match func(servedTransfer) bool) []*workers.Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []*workers.Task
	for t, g := range f.served {
		if match(g) {
			found = append(found, t)
		}
	}
	return found
}

// Connect finds a peer in the network. An incarnation of zero takes any.
func (f *Fabric) Connect(ctx context.Context, p fabric.Peer) (fabric.Link, error) {
	far := f.options.Network.find(p.Address)
	if f.isClosed() {
		return nil, fabric.ErrClosed
	}
	if far == nil {
		return nil, &fabric.Error{Op: "connect", Subject: p.Name, Err: fabric.ErrPeerGone, Hint: "no such agent in this network"}
	}
	came := far.options.Incarnation
	if p.Incarnation != (kv.ID{}) && p.Incarnation != came {
		err := fmt.Errorf("%w: expected %s, came %s", fabric.ErrStalePeer, p.Incarnation, came)
		return nil, &fabric.Error{Op: "connect", Subject: p.Name, Err: err}
	}
	l := newLink(f, far)
	if !f.keep(l) {
		return nil, fabric.ErrClosed
	}
	if !far.keep(l) {
		_ = l.Close(ctx) // nothing was posted yet
		return nil, &fabric.Error{Op: "connect", Subject: p.Name, Err: fabric.ErrPeerGone}
	}
	return l, nil
}

func (f *Fabric) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// keep lets Close find the link at this end.
func (f *Fabric) keep(l *link) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || l.Usable() != nil {
		return false
	}
	f.links[l] = struct{}{}
	return true
}

func (f *Fabric) forget(l *link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.links, l)
}

// Close ends every link, from here and to here, and waits for the workers and
// for peers' transfers that touch memory here. It may be called again.
func (f *Fabric) Close(ctx context.Context) error {
	f.options.Network.leave(f)
	f.mu.Lock()
	f.closed = true
	links := make([]*link, 0, len(f.links))
	for l := range f.links {
		links = append(links, l)
	}
	f.mu.Unlock()
	var errs []error
	for _, l := range links {
		if l.near == f {
			errs = append(errs, l.Close(ctx))
		} else {
			errs = append(errs, l.end(ctx, fabric.ErrPeerGone))
		}
	}
	all := func(servedTransfer) bool { return true }
	errs = append(errs, workers.StopAll(ctx, fabric.ErrPeerGone, f.findServed(all)), f.pool.Close(ctx))
	return errors.Join(errs...)
}

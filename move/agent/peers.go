package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/kv"
	"meridian/move/fabric"
)

// PeersOptions configures NewPeers.
type PeersOptions struct {
	// Find looks an agent up by its name; default the agent's own Find.
	Find func(ctx context.Context, name string) (*Peer, error)
	// Gone, where given, is told of a member whose name another start has now.
	// The caller of With or Tell calls it, with no lock held.
	Gone func(kv.Member)
	// MaxInFlight bounds the messages on their way to one member; default 256.
	MaxInFlight int
}

// Peers is how a room reaches other agents by what its messages call them: name
// and incarnation. It looks them up when nothing is known of them, and again
// when what is known no longer holds.
type Peers struct {
	agent   *Agent
	options PeersOptions

	mu       sync.Mutex // protects inFlight
	inFlight map[kv.Member]int
}

// NewPeers returns what a room reaches other agents through. It needs no closing.
func NewPeers(a *Agent, o PeersOptions) *Peers {
	if o.Find == nil {
		o.Find = a.Find
	}
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 256)
	return &Peers{agent: a, options: o, inFlight: make(map[kv.Member]int)}
}

// With does something with a peer, and once more when that fails because the
// peer has restarted, was forgotten, or has registered memory since it was
// looked up. So do must be something that can be done again after such an error.
func (p *Peers) With(ctx context.Context, m kv.Member, do func(*Peer) error) error {
	if known := p.agent.known(m); known != nil {
		if err := do(known); !outdated(err) {
			return err
		}
	}
	found, err := p.lookUp(ctx, m)
	if err != nil {
		return err
	}
	return do(found)
}

// outdated tells whether an error may come from knowing too little of a peer.
func outdated(err error) bool {
	return slices.ContainsFunc([]error{fabric.ErrStalePeer, ErrForgotten, fabric.ErrUnknownRegion, fabric.ErrStaleEpoch}, func(sign error) bool { return errors.Is(err, sign) })
}

// known is the peer that is this start, or nil.
func (a *Agent) known(m kv.Member) *Peer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.peers[m.Name]; p != nil && p.Incarnation == m.Incarnation {
		return p
	}
	return nil
}

// lookUp asks for an agent's metadata, also for what it has registered since it
// was last asked.
func (p *Peers) lookUp(ctx context.Context, m kv.Member) (*Peer, error) {
	var found *Peer
	var err error
	if m.Name == p.agent.Name() {
		found, err = p.agent.LoadMetadata(p.agent.MetadataBlob())
	} else {
		found, err = p.options.Find(ctx, m.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("agent: looking for %v: %w", m, err)
	}
	if found.Incarnation != m.Incarnation {
		if p.options.Gone != nil {
			p.options.Gone(m)
		}
		return nil, fmt.Errorf("%w: %v was wanted, %s has its name now", fabric.ErrStalePeer, m, found.Incarnation)
	}
	return found, nil
}

// Tell delivers payload to a member, unordered, and returns when it has been
// taken. When too many are on their way to it already it is refused with
// ErrBusy, without waiting.
func (p *Peers) Tell(ctx context.Context, m kv.Member, payload []byte) error {
	if !p.acquire(m) {
		return fmt.Errorf("%w: %d messages are on their way to %v", fabric.ErrBusy, p.options.MaxInFlight, m)
	}
	defer p.release(m)
	return p.With(ctx, m, func(peer *Peer) error { return peer.NotifyUnordered(ctx, payload) })
}

// Post is Tell for who does not wait: see Peer.PostNotification.
func (p *Peers) Post(ctx context.Context, m kv.Member, payload []byte, ended func(error)) error {
	if !p.acquire(m) {
		return fmt.Errorf("%w: %d messages are on their way to %v", fabric.ErrBusy, p.options.MaxInFlight, m)
	}
	over := func(err error) {
		p.release(m)
		ended(err)
	}
	err := p.With(ctx, m, func(peer *Peer) error { return peer.PostNotification(ctx, payload, over) })
	if err != nil {
		p.release(m)
	}
	return err
}

// Announce is Post for who must not wait for a connection, either: see Peer.Announce.
func (p *Peers) Announce(m kv.Member, payload []byte, within time.Duration, ended func(error)) error {
	known := p.agent.known(m)
	if known == nil {
		return fabric.ErrUnconnected
	}
	if !p.acquire(m) {
		return fmt.Errorf("%w: %d messages are on their way to %v", fabric.ErrBusy, p.options.MaxInFlight, m)
	}
	err := known.Announce(payload, within, func(err error) {
		p.release(m)
		ended(err)
	})
	if err != nil {
		p.release(m)
	}
	return err
}

func (p *Peers) acquire(m kv.Member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[m] >= p.options.MaxInFlight {
		return false
	}
	p.inFlight[m]++
	return true
}

func (p *Peers) release(m kv.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[m]--; p.inFlight[m] == 0 {
		delete(p.inFlight, m)
	}
}

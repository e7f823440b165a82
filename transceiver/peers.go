package transceiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/agent"
	"meridian/fabric"
	"meridian/transceiver/handoff"
)

// peers keeps the agents that were looked up.
type peers struct {
	transceiver *Transceiver

	mu       sync.Mutex // protects the rest
	known    map[string]*agent.Peer
	inFlight map[handoff.Member]int // messages on their way
}

func newPeers(t *Transceiver) *peers {
	return &peers{transceiver: t, known: make(map[string]*agent.Peer), inFlight: make(map[handoff.Member]int)}
}

// find returns the agent that is this start of it. When another start has its
// name, the machines learn that this one is gone.
func (p *peers) find(ctx context.Context, m handoff.Member) (*agent.Peer, error) {
	p.mu.Lock()
	peer := p.known[m.Name]
	p.mu.Unlock()
	if peer != nil && peer.Incarnation == m.Incarnation {
		return peer, nil
	}
	return p.findAnew(ctx, m)
}

// findAnew looks an agent up, also for what it has registered since.
func (p *peers) findAnew(ctx context.Context, m handoff.Member) (*agent.Peer, error) {
	peer, err := p.lookUp(ctx, m.Name)
	if err != nil {
		return nil, fmt.Errorf("transceiver: looking for %v: %w", m, err)
	}
	p.mu.Lock()
	p.known[m.Name] = peer
	p.mu.Unlock()
	if peer.Incarnation != m.Incarnation {
		p.transceiver.gone(m)
		return nil, fmt.Errorf("%w: %v was wanted, %s has its name now", fabric.ErrStalePeer, m, peer.Incarnation)
	}
	return peer, nil
}

func (p *peers) lookUp(ctx context.Context, name string) (*agent.Peer, error) {
	o := &p.transceiver.options
	switch {
	case name == o.Agent.Name():
		return o.Agent.LoadMetadata(o.Agent.MetadataBlob())
	case o.Find != nil:
		return o.Find(ctx, name)
	}
	return o.Agent.Find(ctx, name)
}

// with does something with a peer, and looks it up anew if what is known of it
// is not enough.
func (p *peers) with(ctx context.Context, m handoff.Member, do func(*agent.Peer) error) error {
	peer, err := p.find(ctx, m)
	if err == nil {
		err = do(peer)
	}
	if !errors.Is(err, fabric.ErrStalePeer) && !errors.Is(err, agent.ErrForgotten) && !errors.Is(err, fabric.ErrUnknownRegion) &&
		!errors.Is(err, fabric.ErrStaleEpoch) {
		return err
	}
	if peer, err = p.findAnew(ctx, m); err != nil {
		return err
	}
	return do(peer)
}

// acquire counts a message to a peer, or refuses it: what cannot be sent now will
// be said again.
func (p *peers) acquire(m handoff.Member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[m] >= maxInFlight {
		return false
	}
	p.inFlight[m]++
	return true
}

func (p *peers) release(m handoff.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inFlight[m]--; p.inFlight[m] == 0 {
		delete(p.inFlight, m)
	}
}

const (
	maxInFlight = 256
	sendTimeout = 5 * time.Second
)

// send delivers a message. One that is lost is said again by the machines.
func (t *Transceiver) send(e handoff.Send) {
	sent := false
	if t.peers.acquire(e.To) {
		defer t.peers.release(e.To)
		ctx, cancel := context.WithTimeout(t.ctx, sendTimeout)
		defer cancel()
		wire := handoff.AppendMessage(nil, e.Transfer, e.Message)
		err := t.peers.with(ctx, e.To, func(p *agent.Peer) error { return p.NotifyUnordered(ctx, wire) })
		if err != nil {
			t.options.Logger.Debug("a message of a hand-off was not delivered", "peer", e.To.Name, "transfer", e.Transfer.String(), "error", err)
		}
		sent = err == nil
	}
	t.count(func(m *Metrics) {
		if sent {
			m.MessagesSent++
		} else {
			m.MessagesLost++
		}
	})
}

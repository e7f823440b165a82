package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"meridian/kv"
	"meridian/move/fabric"
)

// ErrForgotten means that Forget ended the peer; its metadata must be loaded
// again.
var ErrForgotten = errors.New("agent: the peer was forgotten")

// Peer is one incarnation of another agent, or of this one.
type Peer struct {
	Name        string
	Incarnation kv.ID

	agent *Agent

	mu       sync.Mutex // protects the rest
	fabrics  map[string][]byte
	regions  map[uint64]RegionInfo
	links    map[string]*linkAttempt
	gone     error // why nothing reaches it any more: replaced, or forgotten
	measured map[measure]float64
}

// measure is one thing whose speed is remembered.
type measure struct {
	fabric string
	op     fabric.Op
}

// LoadMetadata learns of a peer from its blob. A blob of the incarnation that
// is known adds to it, or, when it is whole, replaces what is known of its
// regions. One of another incarnation replaces the peer: its links are closed,
// in the background, and what was prepared for it fails from then on.
func (a *Agent) LoadMetadata(blob []byte) (*Peer, error) {
	m, err := parseMetadata(blob)
	if err != nil {
		return nil, err
	}
	return a.load(m)
}

func (a *Agent) load(m metadata) (*Peer, error) {
	p, links, err := a.admit(m)
	if err != nil {
		return nil, err
	}
	a.closeLinks(links...)
	return p, nil
}

// admit finds or replaces the peer that m is about; links are the old one's.
func (a *Agent) admit(m metadata) (p *Peer, links []fabric.Link, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, nil, fabric.ErrClosed
	}
	p = a.peers[m.name]
	if p == nil || p.Incarnation != m.incarnation {
		if p != nil {
			links = p.retire(fmt.Errorf("%w: %s was %s, now it is %s", fabric.ErrStalePeer, p.Name, p.Incarnation, m.incarnation))
		}
		p = &Peer{
			Name: m.name, Incarnation: m.incarnation, agent: a, fabrics: make(map[string][]byte),
			regions: make(map[uint64]RegionInfo), links: make(map[string]*linkAttempt), measured: make(map[measure]float64),
		}
		a.peers[m.name] = p
	}
	p.learn(m)
	return p, links, nil
}

func (p *Peer) learn(m metadata) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !m.partial {
		clear(p.regions)
	}
	for _, r := range m.fabrics {
		p.fabrics[r.fabric] = r.address
	}
	for _, r := range m.regions {
		p.regions[r.ID] = r
	}
}

// learnSpeed keeps a moving average of how fast a fabric was with this peer.
func (p *Peer) learnSpeed(op fabric.Op, bytes uint64, a *Attempt) {
	const worthMeasuring = 1 << 20
	took := a.Times.Ended.Sub(a.Times.Posted)
	if a.State != fabric.Done || bytes < worthMeasuring || took <= 0 {
		return
	}
	rate := float64(bytes) / float64(took)
	p.mu.Lock()
	defer p.mu.Unlock()
	key := measure{a.Fabric, op}
	if old := p.measured[key]; old > 0 {
		rate = 0.8*old + 0.2*rate
	}
	p.measured[key] = rate
}

// speed is what was learnt, in bytes to a nanosecond; 0 is nothing.
func (p *Peer) speed(m measure) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.measured[m]
}

// Regions lists what is known of the peer's memory, by id.
func (p *Peer) Regions() []RegionInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.regions), byID)
}

// Forget ends every link to a peer and everything that runs on them. The Peer
// is of no use after that; LoadMetadata makes another.
func (a *Agent) Forget(ctx context.Context, name string) error {
	a.mu.Lock()
	p := a.peers[name]
	delete(a.peers, name)
	a.mu.Unlock()
	if p == nil {
		return fmt.Errorf("agent: no peer %q", name)
	}
	var errs []error
	for _, l := range p.retire(fmt.Errorf("%w: %s", ErrForgotten, name)) {
		errs = append(errs, l.Close(ctx))
	}
	return errors.Join(errs...)
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"meridian/fabric"
	"meridian/mrdn"
)

// Peer is one incarnation of another agent, or of this one.
type Peer struct {
	Name        string
	Incarnation mrdn.ID

	agent *Agent

	mu       sync.Mutex // protects the rest
	fabrics  map[string][]byte
	regions  map[uint64]RegionInfo
	links    map[string]fabric.Link
	replaced mrdn.ID // the incarnation that came after, if one did
	measured map[measure]float64
}

// measure is one thing whose speed is remembered.
type measure struct {
	fabric string
	op     fabric.Op
}

// LoadMetadata learns of a peer from its blob. A blob of the incarnation that
// is known adds to it, or, when it is whole, replaces what is known of its
// regions. One of another incarnation replaces the peer: what was prepared for
// the old one fails from then on.
func (a *Agent) LoadMetadata(blob []byte) (*Peer, error) {
	m, err := parseMetadata(blob)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fabric.ErrClosed
	}
	p := a.peers[m.name]
	if p == nil || p.Incarnation != m.incarnation {
		if p != nil {
			p.retire(m.incarnation)
		}
		p = &Peer{
			Name: m.name, Incarnation: m.incarnation, agent: a, fabrics: make(map[string][]byte),
			regions: make(map[uint64]RegionInfo), links: make(map[string]fabric.Link), measured: make(map[measure]float64),
		}
		a.peers[m.name] = p
	}
	p.learn(m)
	return p, nil
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

func (p *Peer) retire(successor mrdn.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaced = successor
}

// Regions lists what is known of the peer's memory, by id.
func (p *Peer) Regions() []RegionInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	infos := slices.Collect(maps.Values(p.regions))
	slices.SortFunc(infos, func(x, y RegionInfo) int { return int(int64(x.ID) - int64(y.ID)) })
	return infos
}

// link returns the peer's link on a fabric, connecting at the first use.
func (p *Peer) link(ctx context.Context, f fabric.Fabric) (fabric.Link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replaced != (mrdn.ID{}) {
		return nil, fmt.Errorf("%w: %s was %s, now it is %s", fabric.ErrStalePeer, p.Name, p.Incarnation, p.replaced)
	}
	if l := p.links[f.Name()]; l != nil {
		return l, nil
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, connectTimeout)
		defer cancel()
	}
	l, err := f.Connect(ctx, fabric.Peer{Name: p.Name, Incarnation: p.Incarnation, Address: p.fabrics[f.Name()]})
	if err != nil {
		return nil, err
	}
	p.links[f.Name()] = l
	return l, nil
}

// Notify delivers payload to the peer by itself, in order after what was posted
// before on the same fabric, and returns when the peer has taken it.
func (p *Peer) Notify(ctx context.Context, payload []byte) error {
	var errs []error
	for _, f := range p.agent.fabrics {
		if _, reachable := p.fabrics[f.Name()]; !reachable || !f.Capabilities().Notify {
			continue
		}
		l, err := p.link(ctx, f)
		if err == nil {
			err = l.Notify(ctx, NewID(), payload)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return fmt.Errorf("%w: no fabric in common with %s that notifies", fabric.ErrUnsupported, p.Name)
	}
	return errors.Join(errs...)
}

// Forget ends every link to a peer and everything that runs on them.
func (a *Agent) Forget(ctx context.Context, name string) error {
	a.mu.Lock()
	p := a.peers[name]
	delete(a.peers, name)
	a.mu.Unlock()
	if p == nil {
		return fmt.Errorf("agent: no peer %q", name)
	}
	p.mu.Lock()
	links := slices.Collect(maps.Values(p.links))
	clear(p.links)
	p.mu.Unlock()
	var errs []error
	for _, l := range links {
		errs = append(errs, l.Close(ctx))
	}
	return errors.Join(errs...)
}

// AgentRecord is what the directory holds of an agent.
type AgentRecord struct {
	Name        string            `json:"name"`
	Incarnation string            `json:"incarnation"`
	Fabrics     map[string]string `json:"fabrics"`
	// Regions is a digest of the region table: it changes when the table does.
	Regions string `json:"regions"`
}

// AgentKey is where an agent's record stands.
func AgentKey(name string) string { return AgentPrefix + name }

// AgentPrefix is where all agents' records stand.
const AgentPrefix = "agents/"

func (a *Agent) record() ([]byte, error) {
	r := AgentRecord{Name: a.options.Name, Incarnation: a.incarnation.String(), Fabrics: make(map[string]string)}
	for _, f := range a.reaches() {
		r.Fabrics[f.fabric] = string(f.address)
	}
	blob := metadata{name: r.Name, regions: a.Regions()}.append(nil)
	r.Regions = fmt.Sprintf("%x", blob[len(blob)-8:])
	return json.Marshal(r)
}

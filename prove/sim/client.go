package sim

import (
	"context"
	"time"

	"meridian/kv"
	"meridian/move/agent"
)

// client is a program that uses an agent: it knows some peers, perhaps not as they are
// now, has transfers running, and keeps lists for longer than it should.
type client struct {
	peers    map[string]*agent.Peer
	older    []*agent.Peer // replaced or forgotten since
	blobs    [][]byte      // metadata as it once was
	kept     []side
	running  []*transfer
	ended    []*transfer // and not released
	requests []*agent.Request
	grants   []*grant // given, and not revoked
	inbox    []string // what the agent took and its client has not read yet
}

func newClient() client { return client{peers: make(map[string]*agent.Peer)} }

// nextErrand sends clients on so many errands, one after the other.
func (w *world) nextErrand(left int) {
	if left == 0 {
		w.calm = true
		return
	}
	gap := time.Duration(w.work.ExpFloat64() * float64(w.swarm.errandGap))
	switch w.work.IntN(40) {
	case 0:
		gap += between(w.work, 0, 4*time.Second)
	case 1, 2, 3:
		gap += between(w.work, 0, 4*w.swarm.keepAlive)
	}
	w.after(gap, nil, func() {
		if p := one(w.work, w.hosts).process; p != nil {
			w.after(0, p, p.errand)
		}
		w.nextErrand(left - 1)
	})
}

// errand is one thing that a client wants.
func (p *process) errand() {
	w := p.world
	switch n := w.work.IntN(100); {
	case n < 50:
		p.post()
	case n < 57:
		p.repost()
	case n < 65:
		p.repeat()
	case n < 70:
		p.cancelSome()
	case n < 76:
		p.changeRegions()
	case n < 80:
		if r := p.someRegion(); r != nil {
			r.rewrite()
			w.note(p, nil, "rewrites region %d", r.id)
		}
	case n < 84:
		p.learn(one(w.work, w.hosts))
	case n < 86:
		p.forget()
	case n < 92:
		if peer := p.somePeer(); peer != nil {
			p.notify(peer)
		}
	case n < 96:
		p.drain(false)
	case n < 99 || w.work.IntN(2) == 0:
		p.revokeSome()
	default:
		p.close()
		w.tally.Closed++
		w.after(between(w.work, 0, time.Second), nil, p.host.restart)
	}
}

// someRegion picks a region that is registered; nil when there is none.
func (p *process) someRegion() *region {
	var all []*region
	for _, r := range p.regions {
		if r.registered {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return one(p.world.work, all)
}

func (p *process) changeRegions() {
	w := p.world
	r := p.someRegion()
	switch n := w.work.IntN(10); {
	case r == nil || n < 3 && len(p.regions) < 4:
		p.register()
	case n < 8:
		r.fence()
	default:
		r.deregister()
	}
	if p.directory != nil && w.work.IntN(2) == 0 && (w.store.down || p.directory.held(w.store)) {
		err := p.agent.Republish(context.Background())
		w.note(p, nil, "publishes itself again: %v", err)
	}
}

// somePeer picks a peer that is known, or finds one.
func (p *process) somePeer() *agent.Peer {
	w := p.world
	if len(p.older) > 0 && w.work.IntN(20) == 0 {
		return one(w.work, p.older)
	}
	h := one(w.work, w.hosts)
	known := p.peers[h.name]
	if known == nil || w.work.IntN(4) == 0 {
		p.learn(h)
		known = p.peers[h.name]
	}
	return known
}

// learn finds out about a host's agent: from the directory, from itself, or from
// what it once said.
func (p *process) learn(h *host) {
	w := p.world
	var peer *agent.Peer
	var err error
	switch n := w.work.IntN(10); {
	case n == 0 && len(p.blobs) > 0:
		peer, err = p.agent.LoadMetadata(one(w.work, p.blobs))
	case n < 6 && p.directory != nil:
		peer, err = p.agent.Find(context.Background(), h.name)
	default:
		peer, err = p.agent.Fetch(context.Background(), "rail0", h.name)
	}
	if err != nil {
		w.note(p, nil, "learns nothing of %s: %v", h.name, err)
		w.tally.Unknown++
		return
	}
	if before := p.peers[peer.Name]; before != peer && before != nil {
		p.older = append(p.older, before)
	}
	p.peers[peer.Name] = peer
	if h.process != nil && w.work.IntN(3) == 0 {
		p.blobs = append(p.blobs, h.process.agent.MetadataBlob())
	}
	w.note(p, nil, "learns of %v", w.processOf(peer.Incarnation))
}

func (p *process) forget() {
	w := p.world
	h := one(w.work, w.hosts)
	if peer := p.peers[h.name]; peer != nil {
		w.note(p, nil, "forgets %s", h.name)
		if err := p.agent.Forget(context.Background(), h.name); err != nil {
			w.violate("peers can be forgotten", nil, "%v: %v", p, err)
		}
		delete(p.peers, h.name)
		p.older = append(p.older, peer)
	}
}

func (p *process) revokeSome() {
	for i, g := range p.grants {
		if !g.revoked && p.world.work.IntN(2) == 0 {
			p.grants = append(p.grants[:i], p.grants[i+1:]...)
			g.revoke()
			return
		}
	}
}

func (p *process) cancelSome() {
	if len(p.running) > 0 {
		one(p.world.work, p.running).cancel()
	}
}

// processOf finds who has, or had, an incarnation.
func (w *world) processOf(incarnation kv.ID) *process { return w.processes[incarnation] }

// releaseAll gives up whatever the client holds of its agent.
func (p *process) releaseAll() {
	for _, t := range p.running {
		t.abandon()
	}
	p.running = nil
	for _, r := range p.regions {
		for _, t := range r.owners {
			if t != nil {
				t.lose(r)
			}
		}
	}
	for _, r := range p.requests {
		r.Release()
	}
}

// settleAll judges whatever is still of interest in this process's memory.
func (p *process) settleAll() {
	for _, r := range p.regions {
		for _, t := range r.owners {
			if t != nil && t.over {
				t.freeze()
				t.release()
			}
		}
	}
}

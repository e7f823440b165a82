package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"meridian/kv"
	"meridian/member/directory"
	"meridian/move/agent"
	"meridian/move/fabric"
)

// host is a machine: a name, under which one process lives after the other.
type host struct {
	world   *world
	index   int
	name    string
	process *process // nil while none lives
	births  int
	// wall is how far the wall clock is off. Nothing may depend on it.
	wall time.Duration
}

// process is an agent and its client.
type process struct {
	client

	world       *world
	host        *host
	name        string
	clock       *clock
	agent       *agent.Agent
	directory   *registry
	rails       []*rail
	regions     []*region
	background  []func() // work of the agent's that is due
	waiting     []*fiber
	pausedUntil time.Duration
	dead        bool
}

func (p *process) String() string { return p.name }

// start opens an agent. A name that the directory still holds for the one before
// is tried again until it is free.
func (h *host) start() {
	w := h.world
	h.births++
	p := &process{world: w, host: h, name: fmt.Sprintf("%s#%d", h.name, h.births)}
	p.clock = &clock{process: p, origin: origins.Add(time.Duration(w.work.Int64N(int64(40 * 365 * 24 * time.Hour))))}
	p.client = newClient()
	var directory directory.Directory
	if w.store != nil {
		p.directory = newRegistry(w.store, p)
		directory = p.directory
	}
	fabrics := make([]agent.Opener, w.swarm.rails)
	for i := range fabrics {
		fabrics[i] = p.openRail
	}
	opened, err := agent.Open(context.Background(), agent.Options{
		Name: h.name, Fabrics: fabrics, Directory: directory, Inbox: agent.InboxLimits{Count: w.swarm.inbox}, Records: w.swarm.records,
		Clock: p.clock, Random: p, Background: p.later,
	})
	if err != nil {
		w.note(nil, nil, "%v does not start: %v", p, err)
		p.abandonDirectory()
		h.births--
		w.after(300*time.Millisecond, nil, h.restart)
		return
	}
	p.agent, h.process = opened, p
	w.processes[opened.Incarnation()] = p
	w.note(p, nil, "starts")
	for range 1 + w.work.IntN(2) {
		p.register()
	}
	w.tally.Processes++
}

func (h *host) restart() {
	if h.process == nil {
		h.start()
	}
}

func (p *process) openRail(_ context.Context, self agent.Self) (fabric.Fabric, error) {
	r := &rail{process: p, number: len(p.rails), self: self}
	p.rails = append(p.rails, r)
	return r, nil
}

// Read makes the agent's ids.
func (p *process) Read(b []byte) (int, error) {
	for n := 0; n < len(b); n += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], p.world.work.Uint64())
		copy(b[n:], word[:])
	}
	return len(b), nil
}

// later is the agent's background: its work becomes an event.
func (p *process) later(work func()) {
	p.background = append(p.background, work)
	p.world.after(between(p.world.road, 0, time.Millisecond), p, p.workOff)
}

func (p *process) workOff() {
	if len(p.background) > 0 {
		work := p.background[0]
		p.background = p.background[1:]
		work()
	}
}

// look is what a client does after every event of its process: see what ended.
func (p *process) look() {
	running := p.running[:0]
	for _, t := range p.running {
		if t.look() {
			p.ended = append(p.ended, t)
		} else {
			running = append(running, t)
		}
	}
	clear(p.running[len(running):])
	p.running = running
	if len(p.waiting) > 0 {
		p.wakeFibers()
	}
}

// incarnation is this start of the agent.
func (p *process) incarnation() kv.ID { return p.agent.Incarnation() }

// crash ends the process without a word. Its memory is gone at once; its peers
// hear of it from its kernel, or, when the whole machine stopped, not at all.
func (p *process) crash() {
	w := p.world
	silent := w.mischief.IntN(2) == 0
	w.note(p, nil, "dies; its peers are told: %t", !silent)
	p.dead = true
	p.host.process = nil
	for _, c := range w.connections {
		switch {
		case c.nearLost && c.farLost || c.dead:
		case c.near.process == p || c.far.process == p:
			c.sever(!silent, !silent)
		}
	}
	p.discard()
}

// discard takes apart what a process was made of, without judging what it does:
// for one that died, and for a world that broke off.
func (p *process) discard() {
	p.dead = true
	p.host.process = nil
	for len(p.background) > 0 {
		p.workOff()
	}
	_ = p.agent.Close(atOnce)
	p.wakeFibers()
	p.abandonDirectory()
	p.releaseAll()
	for _, r := range p.regions {
		r.discard()
	}
}

// close ends the process as a good citizen does, and looks for what is left.
func (p *process) close() {
	w := p.world
	w.note(p, nil, "closes")
	for len(p.background) > 0 {
		p.workOff()
	}
	for _, r := range p.regions {
		if r.registered && w.work.IntN(2) == 0 {
			r.deregister()
		}
	}
	if err := p.agent.Close(context.Background()); err != nil && !errors.Is(err, directory.ErrUnavailable) {
		w.violate("agents close", nil, "%v: %v", p, err)
	}
	p.look()
	if len(p.running) > 0 {
		w.violate("closing ends everything", p.running[0], "%v is closed, and %v still runs", p, p.running[0])
	}
	p.drain(true)
	p.settleAll()
	p.dead = true
	p.host.process = nil
	p.wakeFibers()
	p.abandonDirectory()
	p.releaseAll()
	for _, r := range p.regions {
		if n := r.arena.References(); n != 0 {
			w.violate("references return to zero", nil, "region %d of %v has %d left", r.id, p, n)
		}
		r.discard()
	}
}

func (p *process) abandonDirectory() {
	if p.directory != nil {
		_ = p.directory.Close(atOnce)
	}
}

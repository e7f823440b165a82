package sim

import (
	"fmt"
	"strings"
	"time"
)

// nextFault draws how many packets it is to the next trouble.
func (w *world) nextFault() {
	w.untilMischief = 1 + int(w.mischief.ExpFloat64()*float64(w.swarm.mischiefGap))
}

// countPacket is called for every packet: trouble comes between two of them, so
// that it finds transfers half way.
func (w *world) countPacket() {
	if w.untilMischief--; w.untilMischief == 0 {
		w.after(0, nil, w.trouble)
		w.nextFault()
	}
}

// trouble is one fault of those that this world has.
func (w *world) trouble() {
	if w.calm {
		return
	}
	var able []Fault
	for f, do := range troubles {
		if do != nil && w.swarm.faults[f] {
			able = append(able, Fault(f))
		}
	}
	if len(able) == 0 {
		return
	}
	if f := one(w.mischief, able); troubles[f](w) {
		w.tally.Faults[f]++
	}
}

var troubles = [faultCount]func(*world) bool{
	Reset:     func(w *world) bool { return w.severOne(true, true) },
	HalfOpen:  func(w *world) bool { return w.severOne(w.mischief.IntN(2) == 0, false) },
	Partition: func(w *world) bool { return w.part(true) },
	OneWay:    func(w *world) bool { return w.part(false) },
	Slow:      (*world).slowDown,
	Crash:     (*world).crashOne,
	Pause:     (*world).pauseOne,
	Outage:    (*world).loseDirectory,
	ClockJump: (*world).jump,
}

func (w *world) severOne(near, far bool) bool {
	var alive []*connection
	for _, c := range w.connections {
		if c.alive() {
			alive = append(alive, c)
		}
	}
	if len(alive) == 0 {
		return false
	}
	c := one(w.mischief, alive)
	far = far || !near && w.mischief.IntN(2) == 0
	w.note(nil, nil, "connection %d is severed; %v learns of it: %t, %v: %t", c.serial, c.near.process, near, c.far.process, far)
	c.sever(near, far)
	return true
}

func (w *world) part(bothWays bool) bool {
	x, y := one(w.mischief, w.hosts), one(w.mischief, w.hosts)
	if x == y {
		return false
	}
	first, last := 0, mostRails-1
	if w.mischief.IntN(2) == 0 {
		first = w.mischief.IntN(mostRails)
		last = first
	}
	w.note(nil, nil, "nothing gets from %s to %s on rails %d to %d; nor back: %t", x.name, y.name, first, last, bothWays)
	for rail := first; rail <= last; rail++ {
		*w.network.way(rail, x, y) = true
		if bothWays {
			*w.network.way(rail, y, x) = true
		}
	}
	w.after(between(w.mischief, time.Millisecond, 6*w.swarm.keepAlive), nil, func() { w.join(x, y) })
	return true
}

func (w *world) join(x, y *host) {
	w.note(nil, nil, "%s and %s reach one another again", x.name, y.name)
	for rail := range mostRails {
		*w.network.way(rail, x, y), *w.network.way(rail, y, x) = false, false
	}
	w.flow()
}

// flow delivers what had stalled, as far as there is a way.
func (w *world) flow() {
	for _, c := range w.connections {
		for i := range c.nearSide {
			c.nearSide[i].out.flow()
			c.farSide[i].out.flow()
		}
	}
}

func (w *world) slowDown() bool {
	h := one(w.mischief, w.hosts)
	w.network.slow[h.index] = between(w.mischief, w.swarm.latency, 50*w.swarm.latency)
	w.note(nil, nil, "%s is slow: %v", h.name, w.network.slow[h.index])
	w.after(between(w.mischief, time.Millisecond, time.Second), nil, func() { w.network.slow[h.index] = 0 })
	return true
}

func (w *world) crashOne() bool {
	h := one(w.mischief, w.hosts)
	if h.process == nil {
		return false
	}
	h.process.crash()
	w.after(between(w.mischief, 0, 3*time.Second), nil, h.restart)
	return true
}

func (w *world) pauseOne() bool {
	p := one(w.mischief, w.hosts).process
	if p == nil || p.pausedUntil > w.now {
		return false
	}
	w.pause(p)
	return true
}

// pause has a process stand still for a while.
func (w *world) pause(p *process) {
	p.pausedUntil = w.now + between(w.mischief, time.Millisecond, 5*w.swarm.keepAlive)
	w.note(p, nil, "stands still for %v", p.pausedUntil-w.now)
}

func (w *world) loseDirectory() bool {
	if w.store == nil || w.store.down {
		return false
	}
	w.note(nil, nil, "the directory is away")
	w.store.stop()
	w.after(between(w.mischief, 10*time.Millisecond, 8*time.Second), nil, w.findDirectory)
	return true
}

func (w *world) findDirectory() {
	if w.store != nil && w.store.down {
		w.note(nil, nil, "the directory is back")
		w.store.start()
	}
}

func (w *world) jump() bool {
	h := one(w.mischief, w.hosts)
	h.wall += time.Duration(w.mischief.Int64N(int64(48*time.Hour))) - 24*time.Hour
	w.note(nil, nil, "the wall clock of %s is off by %v", h.name, h.wall)
	return true
}

// heal ends every trouble.
func (w *world) heal() {
	w.note(nil, nil, "no more faults")
	w.calm = true
	clear(w.network.blocked)
	clear(w.network.slow)
	w.findDirectory()
	w.flow()
}

// describe tells how everything stands.
func (w *world) describe() string {
	var b strings.Builder
	for _, h := range w.hosts {
		p := h.process
		if p == nil {
			fmt.Fprintf(&b, "  %s: no process\n", h.name)
			continue
		}
		m := p.agent.Metrics()
		fmt.Fprintf(&b, "  %v: posted %d, done %d, failed %d; %d grants", p, m.Posted, m.Done, m.Failed, m.Grants)
		if p.pausedUntil > w.now {
			fmt.Fprintf(&b, "; stands still until %v", p.pausedUntil)
		}
		b.WriteString("\n")
		for _, r := range p.regions {
			fmt.Fprintf(&b, "    region %d: epoch %d, registered %t, %d references, %d of %d units free\n",
				r.id, r.epoch, r.registered, r.arena.References(), r.free(), unitCount)
		}
		for _, t := range p.running {
			state, _ := t.running.Status()
			fmt.Fprintf(&b, "    %v: %v %d bytes with %v, %v\n", t, t.op, total(t.source), t.to, state)
		}
	}
	for _, c := range w.connections {
		if !c.nearLost || !c.farLost {
			fmt.Fprintf(&b, "  connection %d: %v posts (holds %s), %v serves (holds %s), dead: %t\n", c.serial,
				c.near.process, held(c.nearLost, c.poster.Held), c.far.process, held(c.farLost, c.server.Held), c.dead)
		}
	}
	return b.String()
}

func held(lost bool, count func() int) string {
	if lost {
		return "nothing: lost"
	}
	return fmt.Sprint(count())
}

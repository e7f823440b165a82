package storesim

import (
	"maps"
	"slices"

	"meridian/keep/store/master"
	"meridian/keep/store/protocol"
	"meridian/kv"
)

// directory is where owners are found, who is master, and who is away. It does not
// fail; that it cannot be reached is trouble of the network.
type directory struct {
	leader *process
	term   uint64
	until  kv.Instant        // of the leader's lease
	owners map[string]record // as clients find them: they go when they are not kept
	roster map[string]kv.ID  // which start was an owner last under a name: it stays
	marks  map[string]kv.ID
}

// record is an owner's.
type record struct {
	peer  kv.Member
	until kv.Instant
}

// view is what a process last read there.
type view struct {
	master kv.Member
	term   uint64
	owners []kv.Member
}

const (
	directoryName = "the directory"
	seat          = 2 * kv.Second // how long a master is one
	ownerLease    = kv.Second
	recordLease   = 3 * kv.Second
)

// elections fills an empty seat now and then.
func (w *world) elections() {
	w.dir.owners, w.dir.roster, w.dir.marks = make(map[string]record), make(map[string]kv.ID), make(map[string]kv.ID)
	var look func()
	look = func() {
		if w.dir.leader == nil || w.Now >= w.dir.until {
			w.elect()
		}
		w.After(w.Span(20*kv.Millisecond, 200*kv.Millisecond), nil, look)
	}
	look()
}

// elect makes a process master that can be reached. It counts its time from when
// it asked.
func (w *world) elect() {
	var able []*process
	for _, h := range w.hosts {
		if p := h.process; h.leads && p != nil && p.still <= w.Now && h.cut[directoryName] <= 0 {
			able = append(able, p)
		}
	}
	if len(able) == 0 {
		return
	}
	p := able[w.Chance.IntN(len(able))]
	asked := w.Now - w.Span(0, 50*kv.Millisecond)
	w.dir.leader, w.dir.until = p, w.Now+seat
	w.dir.term += 1 + uint64(w.Chance.IntN(3))
	term := w.dir.term
	w.tally.Elections++
	w.Note("%v is elected, term %d", p, term)
	w.After(w.Span(0, 100*kv.Millisecond), p, func() { p.lead(term, asked) })
}

// lead: a process hears that it is master, and reads who there is.
func (p *process) lead(term uint64, asked kv.Instant) {
	w := p.world
	if w.dir.term != term {
		return
	}
	var roster, marks []master.Mark
	for _, name := range slices.Sorted(maps.Keys(w.dir.roster)) {
		roster = append(roster, master.Mark{Owner: name, Incarnation: w.dir.roster[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(w.dir.marks)) {
		marks = append(marks, master.Mark{Owner: name, Incarnation: w.dir.marks[name]})
	}
	p.master = master.New(p.clock(), master.Options{Term: term, Lease: ownerLease}, roster, marks)
	p.coordinator, p.term, p.authority = protocol.NewCoordinator(p.master, term), term, asked+seat
	w.Note("%v is master of term %d; %d owners, %d of them away", p, term, len(roster), len(marks))
	p.keepSeat()
}

// keepSeat renews the seat as long as the directory can be reached.
func (p *process) keepSeat() {
	w, term := p.world, p.term
	w.After(seat/4, p, func() {
		if p.term != term {
			return
		}
		asked := w.Now
		if p.host.cut[directoryName] <= 0 {
			there, back := w.Span(0, 30*kv.Millisecond), w.Span(0, 30*kv.Millisecond)
			w.After(there, nil, func() {
				if w.dir.term != term || w.Now >= w.dir.until {
					return
				}
				w.dir.until = w.Now + seat
				w.After(back, p, func() {
					if p.term == term {
						p.authority = max(p.authority, asked+seat)
					}
				})
			})
		}
		p.keepSeat()
	})
}

// standing is for how long this process surely is the master.
func (p *process) standing() kv.Instant { return p.authority - p.world.Now }

// mark writes down that an owner is away, or back, if the one that says so is still
// the master.
func (p *process) mark(m protocol.Mark) {
	w, term, c := p.world, p.term, p.coordinator
	w.After(w.Span(0, 100*kv.Millisecond), p, func() {
		switch {
		case p.coordinator != c:
		case p.host.cut[directoryName] > 0:
			p.mark(m) // until it is written, or another is master
		case w.dir.term == term && w.Now < w.dir.until:
			w.tally.Marks++
			w.Note("%v marks %s as away: %t", p, m.Owner, m.Away)
			if m.Away {
				w.dir.marks[m.Owner] = m.Incarnation
			} else if w.dir.marks[m.Owner] == m.Incarnation {
				delete(w.dir.marks, m.Owner)
			}
			w.After(w.Span(0, 20*kv.Millisecond), p, func() {
				if p.coordinator == c {
					c.Marked(p.clock(), m)
				}
			})
		}
	})
}

// look reads the directory now and then, and keeps the record of an owner there.
func (p *process) look() {
	w := p.world
	if p.host.cut[directoryName] <= 0 {
		if p.server != nil {
			w.dir.owners[p.peer.Name] = record{p.peer, w.Now + recordLease}
			w.dir.roster[p.peer.Name] = p.peer.Incarnation
		}
		seen := view{term: w.dir.term}
		if w.dir.leader != nil && w.Now < w.dir.until {
			seen.master = w.dir.leader.peer
		}
		for _, name := range slices.Sorted(maps.Keys(w.dir.owners)) {
			if r := w.dir.owners[name]; w.Now < r.until {
				seen.owners = append(seen.owners, r.peer)
			}
		}
		w.After(w.Span(0, 20*kv.Millisecond), p, func() { p.saw(seen) })
	}
	pause := w.Span(20*kv.Millisecond, 300*kv.Millisecond) + w.calmly(100*kv.Millisecond)
	if !w.Calm && w.plan.lag && p.server == nil {
		pause += kv.Instant(w.Chance.Int64N(int64(5 * kv.Second))) // what it knows is old
	}
	w.After(pause, p, p.look)
}

func (p *process) saw(seen view) {
	if seen.term < p.view.term {
		return
	}
	changed := seen.master != p.view.master || seen.term != p.view.term
	p.view = seen
	if p.server != nil && changed && seen.master != (kv.Member{}) {
		p.do(p.server.Elected(p.clock(), seen.master, seen.term))
	}
}

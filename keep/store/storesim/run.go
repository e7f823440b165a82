package storesim

import (
	"meridian/keep/store/protocol"
	"meridian/kv"
)

// held is a run of objects that an owner's own process reads where they lie.
type held struct {
	keys    []*key
	objects []protocol.Held
	at      uint64 // how much was read
}

// runOf is some keys in a row.
func (w *world) runOf() []*key {
	first := w.Draw.IntN(len(w.keys))
	return w.keys[first : first+1+w.Draw.IntN(len(w.keys)-first)]
}

// keepRun has the process of an owner bring objects of a row of keys at once, which it
// writes where they are to lie.
func (w *world) keepRun() {
	p, run := w.hosts[w.Draw.IntN(len(w.hosts))].process, w.runOf()
	if p == nil || p.server == nil {
		return
	}
	for _, k := range run {
		c := &call{on: p, key: k, kind: anOpen, value: w.newValue(k), begun: w.point(), deadline: p.clock() + 4*kv.Second}
		w.begin(c, &protocol.Open{Name: k.name, Bytes: uint64(len(c.value.bytes)), WriteMs: uint64(writeTimeout / kv.Millisecond)}, []kv.Member{p.peer})
	}
}

// findRun has the process of an owner hold a run, look at the sums of each, have it read
// for longer than anything else may take, and let it go.
func (w *world) findRun() {
	p, run := w.hosts[w.Draw.IntN(len(w.hosts))].process, w.runOf()
	if p == nil || p.server == nil {
		return
	}
	var names [][]byte
	for _, k := range run {
		names = append(names, k.name)
	}
	w.After(0, p, func() {
		objects, err := p.server.Hold(p.clock(), names)
		if len(objects) == 0 {
			return
		}
		w.tally.Runs++
		w.Note("%v holds %d of %d objects: %v", p, len(objects), len(names), err)
		h := &held{keys: run, objects: objects}
		for _, o := range objects {
			p.holds[o.Lease] = o
			p.touched(object{o.Location.Header, o.Location.Epoch}, o.Location.Offset, o.Location.Bytes, "read")
			if err := p.heap.Check(o.Location.Offset, o.Location.Bytes, o.Location.Checksum); err != nil {
				w.Violate("what is held is what was summed", "%v, header %d in epoch %d: %v", p, o.Location.Header, o.Location.Epoch, err)
			}
		}
		p.readHeld(h)
	})
}

// readHeld reads a piece of a run, or lets it go.
func (p *process) readHeld(h *held) {
	w := p.world
	if len(h.objects) == 0 {
		return
	}
	o := h.objects[0]
	at := o.Location
	if h.at < at.Bytes {
		n := min(at.Bytes-h.at, 1+uint64(w.Chance.IntN(4000)))
		p.touched(object{at.Header, at.Epoch}, at.Offset+h.at, n, "read")
		h.at += n
		pause := w.Span(0, 20*kv.Millisecond)
		if !w.Calm && w.Chance.IntN(8) == 0 {
			pause = w.Span(0, 2*readTimeout)
		}
		w.After(pause, p, func() { p.readHeld(h) })
		return
	}
	if err := p.heap.Check(at.Offset, at.Bytes, at.Checksum); err != nil {
		w.Violate("what is held is what was summed", "%v, header %d in epoch %d, after it was read: %v", p, at.Header, at.Epoch, err)
	}
	broken := !w.Calm && w.plan.rogues && w.Chance.IntN(10) == 0 // as its reader thinks
	if broken {
		p.cause = cause{broken: h.keys[0]}
	}
	h.keys, h.objects, h.at = h.keys[1:], h.objects[1:], 0
	delete(p.holds, o.Lease)
	p.do(p.server.Unhold(p.clock(), o, broken))
	w.After(0, p, func() { p.readHeld(h) })
}

// held reports whether bytes are held for another object than the one they are touched
// for.
func (p *process) held(by object, offset, length uint64) bool {
	for _, o := range p.holds {
		at := o.Location
		if (by != object{at.Header, at.Epoch}) && at.Offset < offset+length && offset < at.Offset+at.Bytes {
			return true
		}
	}
	return false
}

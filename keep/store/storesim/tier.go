package storesim

import (
	"errors"
	"fmt"
	"slices"

	"meridian/internal/seeded"
	"meridian/keep/store/admission"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/checksum"
)

// Owners have a tier below their memory, as package store has it: what was used twice is
// written behind, what a run lacks in memory comes from there. It keeps units alone, the
// objects of one long run, whose keys say what they are; it outlives its process; it is
// slow, full or fails for a while, loses objects and changes bytes. What is decided about
// it is decided by package admission.

// kept is an object of a tier: its bytes, and whether some of them changed.
type kept struct {
	bytes  []byte
	broken bool
}

// below is a process and the tier of its host.
type below struct {
	*process
	sketch   *admission.Sketch
	breaker  admission.Breaker
	uses     map[*key]int
	brings   map[uint64]*bring
	promotes int

	// What the world saw: failures in a row, when the last was, and calls under way.
	failures, calls int
	failed          kv.Instant
}

const (
	admittedUses     = 2
	promotedTogether = 3
	tierPatience     = kv.Second
	promotePatience  = 2 * kv.Second
	leftAlone        = 5 * kv.Second // as the promise is told to people
	failuresInARow   = 4
)

var errTier = errors.New("storesim: the tier has it not")

func (w *world) newUnits() {
	for i := range 3 + w.Draw.IntN(6) {
		k := newKey(fmt.Sprintf("unit%d", i))
		w.newValue(k)
		w.units = append(w.units, k)
	}
}

// all is every key there is.
func (w *world) all() []*key { return append(w.keys[:len(w.keys):len(w.keys)], w.units...) }

// unitOf is what a unit has.
func (w *world) unitOf(k *key) *value {
	for _, v := range w.values {
		if v.key == k {
			return v
		}
	}
	panic("storesim: no unit " + k.String())
}

func newBelow(p *process) *below {
	return &below{process: p, sketch: admission.NewSketch(1 << 10), uses: make(map[*key]int), brings: make(map[uint64]*bring)}
}

// bring is a unit on its way to memory.
type bring struct {
	bytes  []byte
	done   func(error)
	commit bool
}

// bring has an owner take a unit, as a writer in its own process; done hears how it went,
// once.
func (b *below) bring(k *key, bytes []byte, done func(error)) {
	w, over := b.world, false
	x := &bring{bytes: bytes, done: func(err error) {
		if !over {
			over = true
			done(err)
		}
	}}
	request := w.number()
	b.brings[request] = x
	b.do(b.server.Receive(b.clock(), b.peer, request, &protocol.Open{
		Name: k.name, Bytes: uint64(len(bytes)), PatienceMs: uint64(promotePatience / kv.Millisecond), WriteMs: uint64(writeTimeout / kv.Millisecond),
	}))
	w.After(3*writeTimeout, b.process, func() { x.done(protocol.ErrUnavailable) })
}

// heard takes an answer to a bring; false if it is to none.
func (b *below) heard(request uint64, m protocol.Message) bool {
	x := b.brings[request]
	if x == nil {
		return false
	}
	delete(b.brings, request)
	plan, is := m.(*protocol.Plan)
	reply, told := m.(*protocol.Reply)
	switch {
	case is && !x.commit && b.place(b.peer, plan.Span.Grant, plan.Offset, x.bytes):
		x.commit = true
		again := b.world.number()
		b.brings[again] = x
		b.do(b.server.Receive(b.clock(), b.peer, again, &protocol.Commit{
			Header: plan.Header, Epoch: plan.Epoch, KeyHash: plan.KeyHash, Summed: true, Checksum: checksum.OfSums(checksum.AppendSums(nil, x.bytes)),
		}))
	case told:
		x.done(reply.Problem.Err())
	default:
		x.done(protocol.ErrUnavailable)
	}
	return true
}

// useUnits has an engine keep the run up to some unit, and use it: what is not in memory is
// computed, and brought from the first on.
func (w *world) useUnits() {
	h, run := w.hosts[w.Draw.IntN(len(w.hosts))], w.units[:1+w.Draw.IntN(len(w.units))]
	if p := h.process; p != nil && p.server != nil {
		w.After(0, p, func() { p.below.use(run, 0) })
	}
}

func (b *below) use(run []*key, from int) {
	for ; from < len(run); from++ {
		if !b.server.Has(b.clock(), run[from].name) {
			b.bring(run[from], b.world.unitOf(run[from]).bytes, func(err error) {
				if err == nil {
					b.world.After(0, b.process, func() { b.use(run, from+1) })
				}
			})
			return
		}
	}
	b.server.Touch(b.clock(), namesOf(run))
	b.used(run)
}

func namesOf(run []*key) (names [][]byte) {
	for _, k := range run {
		names = append(names, k.name)
	}
	return names
}

// used counts a use of a run, and writes behind what was used before, its end first.
func (b *below) used(run []*key) {
	w := b.world
	for i := len(run) - 1; i >= 0; i-- {
		k := run[i]
		b.uses[k]++
		if b.sketch.Use(k.hash) < admittedUses || b.host.tier[k] != nil {
			continue
		}
		if b.uses[k] < admittedUses {
			w.Violate("what was used once is written to no tier", "%v writes %v", b.process, k)
		}
		b.call(func(ok bool) {
			held, err := b.server.Hold(b.clock(), [][]byte{k.name})
			if err != nil {
				return
			}
			if at := held[0].Location; ok {
				b.host.tier[k] = &kept{bytes: slices.Clone(b.memory[at.Offset : at.Offset+at.Bytes])}
				w.tally.Written++
			}
			b.do(b.server.Unhold(b.clock(), held[0], false))
		})
	}
}

// call asks the tier for something, if it is not left alone, and says how that went: it
// fails, or is late, while its host's tier is bad.
func (b *below) call(done func(ok bool)) {
	w, now := b.world, b.clock()
	rests := b.failures >= failuresInARow && now < b.failed+leftAlone
	if !b.breaker.Allows(now) {
		w.tally.LeftAlone++
		if b.failures == 0 || !rests && b.calls == 0 {
			w.Violate("a tier that was left alone is tried again", "%v, %d failures, the last %v ago", b.process, b.failures, seeded.Duration(now-b.failed))
		}
		done(false)
		return
	}
	if rests {
		w.Violate("a tier that fails is left alone", "%v asks it, %v after %d failures", b.process, seeded.Duration(now-b.failed), b.failures)
	}
	b.calls++
	takes, ok := w.Span(50, 20*kv.Millisecond), true
	switch bad := w.Now < b.host.bad && !w.Calm; {
	case bad && w.Chance.IntN(2) == 0:
		takes, ok = tierPatience, false
		w.tally.TierSlow++
	case bad:
		ok = false
		w.tally.TierFailed++
	}
	w.After(takes, b.process, func() {
		b.calls--
		b.breaker.Ended(b.clock(), ok)
		if b.failures++; ok {
			b.failures = 0
		}
		b.failed = b.clock()
		done(ok)
	})
}

// findUnits has an engine find the run up to some unit: what is not in memory is promoted,
// in time, and what is held then is what the keys say.
func (w *world) findUnits() {
	h, run := w.hosts[w.Draw.IntN(len(w.hosts))], w.units[:1+w.Draw.IntN(len(w.units))]
	forgotten := w.Draw.IntN(4) == 0
	if p := h.process; p != nil && p.server != nil {
		if forgotten { // it must be fetched
			p.send(protocol.Send{To: p.peer, Request: w.number(), Message: &protocol.Evict{Permille: 50}})
		}
		w.After(kv.Millisecond, p, func() { p.below.promote(run) })
	}
}

// promotion is a run on its way to memory.
type promotion struct {
	*below
	run    []*key
	places []admission.Place
	coming int
	over   bool
	until  kv.Instant
}

func (b *below) promote(run []*key) {
	x := &promotion{below: b, run: run, places: make([]admission.Place, len(run)), until: b.clock() + promotePatience}
	for i, k := range run {
		switch {
		case b.server.Has(b.clock(), k.name):
			x.places[i] = admission.Memory
		case b.host.tier[k] != nil:
			x.places[i] = admission.Cold
		}
	}
	b.promotes++
	x.step()
}

// step fetches what is next, or ends.
func (x *promotion) step() {
	w := x.world
	if x.clock() < x.until {
		for _, i := range admission.Ahead(x.places, promotedTogether) {
			for k := range i {
				if x.places[k] == admission.Nowhere {
					w.Violate("nothing is fetched that is of no use", "%v fetches unit %d, and unit %d is nowhere", x.process, i, k)
				}
			}
			x.places[i] = admission.Coming
			if x.coming++; x.coming > promotedTogether {
				w.Violate("no more is fetched at a time than may be", "%v fetches %d units", x.process, x.coming)
			}
			x.call(func(ok bool) { x.got(i, ok) })
		}
	}
	if x.coming == 0 && !x.over {
		x.over = true
		x.promotes--
		x.hold()
	}
}

// got takes what came of a unit.
func (x *promotion) got(i int, ok bool) {
	k := x.run[i]
	o := x.host.tier[k]
	if ok && (o == nil || o.broken) { // it finds out by its sums
		delete(x.host.tier, k)
		ok = false
	}
	ended := func(err error) {
		x.places[i] = admission.Memory
		if err != nil {
			x.places[i] = admission.Nowhere
		}
		x.coming--
		x.world.After(0, x.process, x.step)
	}
	if !ok {
		x.world.After(0, x.process, func() { ended(errTier) })
		return
	}
	x.bring(k, slices.Clone(o.bytes), func(err error) {
		if err == nil {
			x.world.tally.Promoted++
		}
		ended(err)
	})
}

// hold looks at what is in memory of the run, uses it and lets it go.
func (x *promotion) hold() {
	w := x.world
	objects, _ := x.server.Hold(x.clock(), namesOf(x.run))
	for i, o := range objects {
		at := o.Location
		x.touched(object{at.Header, at.Epoch}, at.Offset, at.Bytes, "read")
		if v := w.valueOf(x.memory[at.Offset:][:at.Bytes]); v == nil || v.key != x.run[i] || x.heap.Check(at.Offset, at.Bytes, at.Checksum) != nil {
			w.Violate("what is held is what its key says", "%v: %v", x.process, x.run[i])
		}
		x.do(x.server.Unhold(x.clock(), o, false))
	}
	x.used(x.run[:len(objects)])
}

// tierTrouble makes the tier of a host bad for a while, or what it has.
func (w *world) tierTrouble(h *host) {
	h.bad = max(h.bad, w.Now+w.Span(100*kv.Millisecond, 8*kv.Second))
	w.Note("the tier of %s is bad for %v", h.name, seeded.Duration(h.bad-w.Now))
	for _, k := range w.units {
		switch o := h.tier[k]; {
		case o == nil:
		case w.Chance.IntN(6) == 0:
			delete(h.tier, k)
			w.tally.TierLost++
		case w.Chance.IntN(6) == 0:
			o.bytes[len(o.bytes)/2] ^= 1
			o.broken = true
			w.tally.TierLost++
		}
	}
}

// seeUnits notes which units came and went in an event of an owner: those that made room
// count as evictions.
func (p *process) seeUnits(now map[*key]*value) {
	for _, k := range p.world.units {
		gone := p.found[k] != nil && now[k] == nil
		delete(p.found, k)
		if v := now[k]; v != nil {
			p.found[k] = v
		}
		if gone && !p.cause.drops(k) && p.objects.Stats().Evictions > p.evictions {
			p.evictions++
			p.world.tally.Evictions++
		}
	}
}

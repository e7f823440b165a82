package storesim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
)

// key is one that clients use, with all that became of it.
type key struct {
	name    []byte
	hash    uint64
	history []porcupine.Operation
	puts    int // that began
}

func newKey(text string) *key {
	name, err := protocol.ObjectName("", text)
	if err != nil {
		panic(err)
	}
	return &key{name: name, hash: arena.HashKey(name)}
}

func (k *key) String() string { return string(k.name[1:]) }

// value is what one put brings. Its bytes tell which it is.
type value struct {
	number uint64
	key    *key
	bytes  []byte
	begun  int64 // point at which its put began
	ready  int64 // point at which it could be found first; 0 if it never could
	gone   int64 // point at which it could not any more; 0 if it still can
	told   bool  // its client was told that it is stored
	denied error // its client was told that it is not
}

const smallest = 16

func (w *world) newValue(k *key) *value {
	size := smallest + w.Draw.IntN(600)
	if w.Draw.IntN(3) == 0 {
		size = smallest + w.Draw.IntN(12<<10)
	}
	v := &value{number: uint64(len(w.values) + 1), key: k, bytes: make([]byte, size), begun: w.point()}
	for i := range v.bytes {
		v.bytes[i] = byte(v.number*131 + uint64(i)*7 + uint64(i)>>8)
	}
	binary.LittleEndian.PutUint64(v.bytes, v.number)
	w.values = append(w.values, v)
	k.puts++
	return v
}

// valueOf is the value that these bytes are, and nil if they are none, or not
// wholly one.
func (w *world) valueOf(b []byte) *value {
	if len(b) < smallest {
		return nil
	}
	if n := binary.LittleEndian.Uint64(b); n >= 1 && n <= uint64(len(w.values)) && string(w.values[n-1].bytes) == string(b) {
		return w.values[n-1]
	}
	return nil
}

// The kinds of steps that a key's history has.
type step struct {
	kind  stepKind
	value uint64 // by number
}

type stepKind uint8

const (
	stepPut stepKind = iota
	stepGet
	stepRemove
	stepLost
)

var stepNames = [...]string{"put", "get", "remove", "lost"}

func (s step) String() string { return fmt.Sprintf("%s v%d", stepNames[s.kind], s.value) }

func (k *key) add(s step, call, end int64) {
	k.history = append(k.history, porcupine.Operation{ClientId: len(k.history), Input: s, Call: call, Return: end})
}

// register is the model: a key has one value, or none.
var register = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		stands, s := state.(uint64), input.(step)
		switch s.kind {
		case stepPut:
			return stands == 0, s.value
		case stepGet:
			return stands == s.value, stands
		case stepLost:
			if stands != s.value {
				return true, stands
			}
		}
		return true, uint64(0)
	},
	Equal: func(a, b any) bool { return a.(uint64) == b.(uint64) },
	Hash:  func(state any) uint64 { return state.(uint64) },
}

// judge holds every key's history against the model.
func (w *world) judge() {
	for _, k := range w.keys {
		if w.Broken != nil {
			return
		}
		for _, v := range w.values {
			if v.key == k && !v.told && v.ready != 0 {
				k.add(step{stepPut, v.number}, v.begun, v.ready)
			}
		}
		w.tally.Steps += uint64(len(k.history))
		if !porcupine.CheckOperations(register, k.history) {
			w.Violate("a key has one value at a time, and what is gone stays gone", "%v:%s", k, tellHistory(k.history))
		}
	}
}

func tellHistory(history []porcupine.Operation) string {
	history = slices.Clone(history)
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range history {
		fmt.Fprintf(&b, "\n    from %4d to %4d  %v", o.Call, o.Return, o.Input)
	}
	return b.String()
}

// Before notes, ahead of an event of an owner, whether it still has its lease.
func (p *process) Before() {
	if p.server == nil {
		return
	}
	if !p.server.Answers(p.clock()) {
		p.leased = 0
	} else {
		p.lastLeased = p.world.point()
	}
}

// After sees, after an event of an owner, what can be found there.
func (p *process) After() {
	w := p.world
	if p.server == nil || p.dead {
		return
	}
	// Both are as they were only if nothing came or went.
	if s := p.objects.Stats(); s.Ready != p.seen[0] || s.BytesIn != p.seen[1] {
		p.seen = [2]uint64{s.Ready, s.BytesIn}
		p.compare(p.lookUp())
	}
	p.cause = cause{}
	switch answers := p.server.Answers(p.clock()); {
	case !answers:
		p.leased = 0
	case p.leased == 0:
		p.leased = w.point()
		fallthrough
	default:
		p.lastLeased = w.point()
	}
	p.guarded()
	p.forward()
}

// compare notes what came and what went.
func (p *process) compare(now map[*key]*value) {
	p.seeUnits(now)
	for _, k := range p.world.keys {
		v := now[k]
		if was := p.found[k]; was != nil && was != v {
			delete(p.found, k)
			p.goes(k, was)
		}
		if v != nil && p.found[k] == nil {
			p.found[k] = v
			p.comes(k, v)
		}
	}
}

// lookUp is the values that can be found.
func (p *process) lookUp() map[*key]*value {
	found := make(map[*key]*value)
	p.objects.List(p.clock(), 0, func(o owner.Object) bool {
		for i := range p.heap.UsedHeaders() {
			h := p.heap.Load(i)
			if h.KeyHash != arena.HashKey(o.Name) || h.Word.State() != arena.Ready || h.Checksum != o.Checksum || h.PayloadBase+h.Bytes > uint64(len(p.memory)) {
				continue
			}
			if v := p.world.valueOf(p.memory[h.PayloadBase:][:h.Bytes]); v != nil && string(v.key.name) == string(o.Name) {
				found[v.key] = v
				return true
			}
		}
		p.world.Violate("what can be found is whole and its own", "%v has %s, with bytes that no put brought", p, o.Name[1:])
		return false
	})
	return found
}

// comes: a value can be found.
func (p *process) comes(k *key, v *value) {
	w := p.world
	w.Note("%v has v%d of %v", p, v.number, k)
	if v.ready != 0 {
		w.Violate("a put happens once", "v%d of %v could be found before", v.number, k)
	}
	if v.denied != nil {
		w.Violate("what was refused is not stored", "v%d of %v: %v", v.number, k, v.denied)
	}
	if p.leased == 0 && !p.server.Answers(p.clock()) {
		w.Violate("nothing is stored without a lease", "v%d of %v at %v", v.number, k, p)
	}
	v.ready = w.point()
}

// goes: a value can be found no more. Only these take it: room that was needed, a
// client that removes it, a reader to whom it is broken, and the master's word to an owner without a lease.
func (p *process) goes(k *key, v *value) {
	w := p.world
	evicted := p.objects.Stats().Evictions > p.evictions
	w.Note("%v lets v%d of %v go, evicted: %t", p, v.number, k, evicted)
	switch {
	case p.cause.removes(k), p.cause.broken == k:
		k.lost(w, p, v, false)
	case p.cause.drops(k) && p.leased == 0:
		w.tally.GivenAway++
		k.lost(w, p, v, true)
	case evicted:
		p.evictions++
		w.tally.Evictions++
		k.lost(w, p, v, false)
	default:
		w.Violate("no object is lost", "v%d of %v at %v, which has its lease: %t; the event: %v", v.number, k, p, p.leased != 0, summary{p.cause.message})
	}
}

// lost notes that a value is gone from its owner: since now, or since the owner
// last had a lease.
func (k *key) lost(w *world, p *process, v *value, silent bool) {
	from := w.point()
	v.gone = from
	if silent {
		from = min(from, max(p.lastLeased, v.ready))
	}
	k.add(step{stepLost, v.number}, from, w.point())
}

// cause is the message that an owner just heard, if it did, or whose object a reader in its
// own process called broken.
type cause struct {
	message protocol.Message
	broken  *key
}

func (c cause) removes(k *key) bool {
	m, is := c.message.(*protocol.Remove)
	return is && string(m.Name) == string(k.name)
}

func (c cause) drops(k *key) bool {
	m, is := c.message.(*protocol.Answer)
	return is && m.Verdict == master.Drop && (m.All || slices.Contains(m.Keys, k.hash))
}

// stood is whether a value stood under a key, at an owner with a lease, from a
// point of history until now.
func (w *world) stood(k *key, since int64) (at *process, v *value) {
	for _, h := range w.hosts {
		p := h.process
		if p == nil || p.server == nil || !p.server.Answers(p.clock()) || p.leased == 0 || p.leased > since {
			continue
		}
		if v := p.found[k]; v != nil && v.ready <= since {
			return p, v
		}
	}
	return nil, nil
}

// exists is whether a key had a value that could be found, at any time since a point
// of history.
func (w *world) exists(k *key, since int64) bool {
	return slices.ContainsFunc(w.values, func(v *value) bool { return v.key == k && v.ready != 0 && (v.gone == 0 || v.gone > since) })
}

// inspect looks for what is left when nothing should be.
func (w *world) inspect() {
	if w.Broken != nil {
		return
	}
	for _, c := range w.calls {
		if !c.over {
			w.Violate("everything ends", "%v of %v on %v", c.kind, c.key, c.on)
		}
	}
	leader := w.dir.leader
	for _, h := range w.hosts {
		if p := h.process; p.server != nil {
			p.inspect(leader)
		}
	}
	for _, k := range w.all() {
		name, err := leader.master.Locate(k.hash)
		if err != nil && !errors.Is(err, master.ErrMissing) {
			w.Violate("the master settles", "%v: %v", k, err)
		}
		if name == "" {
			continue
		}
		if p := w.hosts[name[0]-'a'].process; p.found[k] == nil {
			w.Violate("no claim is left without an object", "the master says that %s has %v", name, k)
		}
	}
}

// inspect looks at one owner, with everything quiet.
func (p *process) inspect(leader *process) {
	w := p.world
	stats := p.objects.Stats()
	switch {
	case !p.server.Answers(p.clock()):
		w.Violate("everything ends", "%v has no lease", p)
	case stats.Writing != 0:
		w.Violate("everything ends", "%v still has %d reservations", p, stats.Writing)
	case len(p.grants) != 0:
		w.Violate("everything ends", "%v still has %d grants", p, len(p.grants))
	case len(p.deliveries) != 0:
		w.Violate("everything ends", "%v still has %d deliveries", p, len(p.deliveries))
	case p.below.promotes != 0 || p.below.calls != 0:
		w.Violate("everything ends", "%v still promotes %d runs, and asks its tier %d times", p, p.below.promotes, p.below.calls)
	case len(p.holds) != 0 || p.objects.LeasedPart() != 0:
		w.Violate("everything ends", "%v still holds %d objects, %g of its heap", p, len(p.holds), p.objects.LeasedPart())
	}
	for _, k := range w.all() {
		if v := p.found[k]; v != nil {
			if name, err := leader.master.Locate(k.hash); name != p.host.name {
				w.Violate("the master knows every object", "v%d of %v is at %v, and the master says %q, %v", v.number, k, p, name, err)
			}
		}
	}
	if w.Broken == nil {
		p.empty()
	}
}

// empty evicts all that an owner has: then nothing of its heap may be taken, but
// for what is set aside for producers.
func (p *process) empty() {
	offered := uint64(0)
	for p.objects.EvictUntilBelow(0, 0) > 0 {
	}
	for _, k := range p.world.keys {
		_ = p.objects.Remove(k.name) // what is pinned, or missing
	}
	used := p.objects.Stats().HeapUsed
	for i := range p.heap.UsedHeaders() {
		if h := p.heap.Load(i); h.Word.State() != arena.Dead {
			offered += max(h.Bytes, arena.Segment)
		}
	}
	if used > offered || p.world.plan.offers == 0 && used > 0 {
		p.world.Violate("everything ends", "%v is empty, and %d bytes of its heap are taken, %d are offered", p, used, offered)
	}
}

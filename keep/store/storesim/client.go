package storesim

import (
	"errors"
	"slices"

	"meridian/keep/store/arena"
	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/checksum"
)

// kind is what a client wants.
type kind string

const (
	aPut    kind = "put"
	aPutOf  kind = "put from its memory"
	anOpen  kind = "open"
	aGet    kind = "get"
	aLocate kind = "locate"
	aRemove kind = "remove"
)

// call is one operation of a client, until it is over.
type call struct {
	on        *process
	kind      kind
	key       *key
	value     *value // of a put
	begun     int64
	deadline  kv.Instant
	operation *protocol.Operation
	asked     kv.Member // who was asked last
	request   uint64
	over      bool
	grant     kv.ID  // of its landing, or of its source, while it asks
	landed    []byte // what came there
	source    []byte // what an owner may read
	writer    *writer
}

// want has a client want something.
func (w *world) want() {
	p := w.hosts[w.Draw.IntN(len(w.hosts))].process
	k := w.keys[w.Draw.IntN(len(w.keys))]
	which := w.Draw.IntN(100)
	if p == nil {
		return
	}
	if which >= 96 && len(p.view.owners) > 0 {
		to := p.view.owners[w.Draw.IntN(len(p.view.owners))]
		p.send(protocol.Send{To: to, Request: w.number(), Message: &protocol.Evict{Permille: uint64(w.Draw.IntN(1000))}})
		return
	}
	c := &call{on: p, key: k, begun: w.point(), deadline: p.clock() + w.Span(100*kv.Millisecond, 8*kv.Second)}
	var request protocol.Message
	local := false // at the owner of the client's own agent
	switch {
	case which < 12:
		c.kind, c.value = aPut, w.newValue(k)
		request = &protocol.Put{Name: k.name, Value: c.value.bytes, Attributes: w.attributes()}
	case which < 28:
		c.kind, c.value = aPutOf, w.newValue(k)
		if w.Draw.IntN(2) == 0 {
			c.deadline = p.clock() + 8*kv.Second // longer than its owner lets it take
		}
		request = &protocol.PutFrom{Name: k.name, Attributes: w.attributes()}
	case which < 40:
		c.kind, c.value = anOpen, w.newValue(k)
		length := w.Span(50*kv.Millisecond, 4*kv.Second)
		request = &protocol.Open{
			Name: k.name, Bytes: uint64(len(c.value.bytes)), Attributes: w.attributes(), WriteMs: uint64(length/kv.Millisecond) + 1,
		}
		local = p.server != nil && w.Draw.IntN(3) == 0
	case which < 75:
		c.kind = aGet
		request = &protocol.Get{Name: k.name}
	case which < 80 && p.server != nil:
		c.kind, local = aLocate, true
		request = &protocol.Locate{Name: k.name, WaitMs: uint64(w.Draw.IntN(500))}
	default:
		c.kind = aRemove
		request = &protocol.Remove{Name: k.name}
	}
	owners := protocol.Rendezvous(k.hash, p.view.owners)
	if local || w.Draw.IntN(4) == 0 && p.server != nil {
		owners = preferring(p.peer, owners)
	}
	if !local && len(owners) > 0 && w.Draw.IntN(3) == 0 {
		owners = preferring(owners[w.Draw.IntN(len(owners))], owners) // the nearest, say
	}
	w.begin(c, request, owners)
}

// begin lets a client ask owners, the best first.
func (w *world) begin(c *call, request protocol.Message, owners []kv.Member) {
	p := c.on
	w.calls = append(w.calls, c)
	w.Note("%v wants to %s %v", p, c.kind, c.key)
	c.operation = protocol.NewOperation(request, owners, c.deadline)
	w.After(0, p, func() { c.step(c.operation.Begin(p.clock())) })
	patience := c.deadline - p.clock()
	if c.kind == aPutOf && !w.Calm && w.plan.rogues && w.Chance.IntN(3) == 0 {
		patience = w.Span(0, 100*kv.Millisecond) // it takes its memory back while it is read
	}
	w.After(patience, p, func() {
		if !c.over && c.writer == nil {
			c.step(c.operation.Expire())
		}
	})
}

// preferring puts one owner first; with none else where only it will do.
func preferring(first kv.Member, owners []kv.Member) []kv.Member {
	ordered := []kv.Member{first}
	for _, o := range owners {
		if o != first {
			ordered = append(ordered, o)
		}
	}
	return ordered
}

func (w *world) attributes() protocol.Attributes {
	return protocol.Attributes{Priority: uint8(w.Draw.IntN(3)), Pinned: w.Draw.IntN(10) == 0}
}

// number is one for a request; an owner's own numbers are smaller.
func (w *world) number() uint64 {
	return 1<<40 + w.Number()
}

// step does what an operation does next.
func (c *call) step(s protocol.Step) {
	w, p := c.on.world, c.on
	switch {
	case c.over:
	case s.Over:
		c.end(s.Answer, s.Err)
	case s.Message != nil:
		c.asked = s.To
		if s.ToMaster {
			c.asked = p.view.master
		}
		c.ask(s.Message)
	default:
		w.After(s.Wake-p.clock(), p, func() {
			if !c.over && c.writer == nil {
				c.step(c.operation.Wake(p.clock(), protocol.Rendezvous(c.key.hash, p.view.owners)))
			}
		})
	}
}

// ask sends a request. When it is lost, or its answer may be, the client hears
// that its peer is gone, or nothing.
func (c *call) ask(m protocol.Message) {
	w, p := c.on.world, c.on
	c.request = w.number()
	c.lend(m)
	request := c.request
	p.asks[request] = c
	lost := c.asked == (kv.Member{}) || p.send(protocol.Send{To: c.asked, Request: request, Message: m})
	if lost && w.Chance.IntN(3) > 0 || !w.Calm && w.plan.loss && w.Chance.IntN(20) == 0 {
		w.After(w.Span(5*kv.Millisecond, kv.Second), p, func() {
			if c.request == request && !c.over {
				w.tally.Unanswered++
				c.unanswered()
			}
		})
	}
}

// lend opens memory of the client to the owner that it asks, and to no other that it
// asked before.
func (c *call) lend(m protocol.Message) {
	c.takeBack()
	switch m := m.(type) {
	case *protocol.Get:
		m.Landing = protocol.Span{Region: 2, Length: 1 << 20, Grant: c.on.world.ID()}
		c.grant = m.Landing.Grant
	case *protocol.PutFrom:
		c.source = slices.Clone(c.value.bytes)
		m.Source = protocol.Span{Region: 2, Length: uint64(len(c.source)), Grant: c.on.world.ID()}
		c.grant = m.Source.Grant
	default:
		return
	}
	c.on.lent[c.grant] = c
}

// takeBack closes that memory. What it is used for from then on is no object's.
func (c *call) takeBack() {
	delete(c.on.lent, c.grant)
	clear(c.source)
	c.landed, c.source = nil, nil
}

// unanswered: the client gives its request up. An answer that comes yet is too late.
func (c *call) unanswered() {
	c.request = 0
	if c.writer != nil {
		c.end(nil, protocol.ErrUnavailable)
		return
	}
	c.step(c.operation.Unanswered(c.on.clock(), errors.New("storesim: the peer is gone")))
}

// answered takes an answer to the client of a request.
func (p *process) answered(request uint64, m protocol.Message) {
	if p.below != nil && p.below.heard(request, m) {
		return
	}
	c := p.asks[request]
	delete(p.asks, request)
	switch {
	case c == nil:
	case c.over || c.request != request:
		c.tooLate(m)
	case c.writer != nil:
		c.committed(m)
	default:
		c.request = 0
		c.step(c.operation.Answered(p.clock(), m))
	}
}

// end is what became of an operation.
func (c *call) end(answer protocol.Message, err error) {
	w, p := c.on.world, c.on
	if plan, is := answer.(*protocol.Plan); is {
		c.write(plan)
		return
	}
	c.over = true
	if c.writer != nil {
		c.writer.unlend()
	}
	w.Note("%v: %s %v is over: %T %v", p, c.kind, c.key, answer, err)
	w.tally.ended(c.kind, err)
	switch c.kind {
	case aPut, aPutOf, anOpen:
		c.endPut(err)
	case aGet:
		c.endGet(answer, err)
	case aLocate:
		c.endLocate(answer)
	case aRemove:
		if err == nil || errors.Is(err, owner.ErrMissing) {
			c.key.add(step{kind: stepRemove}, c.begun, w.point())
		}
	}
	c.takeBack()
}

func (c *call) endPut(err error) {
	w := c.on.world
	if err != nil && !errors.Is(err, protocol.ErrUnavailable) {
		if c.value.denied = err; c.value.ready != 0 {
			w.Violate("what was refused is not stored", "v%d of %v: %v", c.value.number, c.key, err)
		}
	}
	switch {
	case err == nil:
		if c.value.ready == 0 {
			w.Violate("what is stored can be found", "v%d of %v was stored, says its owner", c.value.number, c.key)
		}
		c.value.told = true
		c.key.add(step{stepPut, c.value.number}, c.value.begun, w.point())
	case errors.Is(err, owner.ErrExists) && !w.exists(c.key, c.begun):
		w.Violate("a key exists only while its value stands", "%v: %v", c.key, err)
	case errors.Is(err, owner.ErrBusy) && c.key.puts == 1 && c.kind != anOpen:
		w.Violate("a key is busy only if another writes it", "%v: %v", c.key, err)
	}
}

func (c *call) endGet(answer protocol.Message, err error) {
	w := c.on.world
	m, is := answer.(*protocol.Value)
	switch {
	case is:
		if m.Landed {
			m.Data = c.landed
		}
		c.got(m.Data, m.Checksum)
	case errors.Is(err, owner.ErrMissing):
		if at, v := w.stood(c.key, c.begun); v != nil {
			w.Violate("what stands is not missed", "v%d of %v is at %v, and a get since %d missed it", v.number, c.key, at, c.begun)
		}
	}
}

// got: a reader has bytes. They must be a value of its key, and whole.
func (c *call) got(b []byte, sum uint64) {
	w := c.on.world
	v := w.valueOf(b)
	if v == nil || v.key != c.key || checksum.Of(b) != sum {
		w.Violate("what is read is whole and its own", "%v read %d bytes of %v that no put brought", c.on, len(b), c.key)
		return
	}
	c.key.add(step{stepGet, v.number}, c.begun, w.point())
}

// endLocate reads the object where it lies, a while later, as a process does that
// maps the arena: what is there by then is the object, or it is gone.
func (c *call) endLocate(answer protocol.Message) {
	w, p := c.on.world, c.on
	at, is := answer.(*protocol.Location)
	if !is || c.asked != p.peer {
		return
	}
	w.After(w.Span(0, kv.Second), p, func() {
		b := make([]byte, at.Bytes)
		if err := p.heap.Read(arena.Wanted{Index: at.Header, Epoch: at.Epoch, Key: c.key.name}, b, 0); err == nil {
			w.tally.Mapped++
			c.got(b, at.Checksum)
		}
	})
}

// abandon: the process of the client has died.
func (c *call) abandon() { c.over = true }

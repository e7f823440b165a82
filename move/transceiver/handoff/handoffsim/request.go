package handoffsim

import (
	"fmt"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

// request is one prompt whose cache goes from one engine to another.
type request struct {
	world   *world
	serial  int
	id      kv.ID
	salt    uint64
	tokens  int
	first   int // that is held, of an object cache
	of      handoff.Fingerprint
	prefill *engine
	src     *hold
	srcHome *process
	ticket  []byte
	keep    handoff.Instant
	refused bool // the prefill engine, or its home, had no room for it
	tries   []*attempt
}

// attempt is one decode engine's attempt to take it.
type attempt struct {
	request             *request
	decode              *engine
	home                *process
	dst                 *hold
	tokens              kv.TokenRange
	ready, failed, over bool
	greedy              bool // it asks for what the offer does not hold
	why                 handoff.Problem
}

func (r *request) String() string { return fmt.Sprintf("request %d (%.4s)", r.serial, r.id) }

func (r *request) byteAt(values ...int) byte {
	mixed := r.salt
	for _, v := range values {
		mixed = (mixed ^ uint64(v)) * 0x9E3779B97F4A7C15
		mixed ^= mixed >> 29
	}
	return byte(mixed >> 32)
}

func (w *world) request(id kv.ID) *request {
	for _, r := range w.all {
		if r.id == id {
			return r
		}
	}
	panic(fmt.Sprintf("no request %s", id))
}

// arrive is a user's request.
func (w *world) arrive() {
	from := w.Draw.IntN(len(w.engines) - w.stores())
	to := (from + 1 + w.Draw.IntN(len(w.engines)-1)) % len(w.engines)
	r := &request{
		world: w, serial: len(w.all), id: w.ID(), salt: w.Draw.Uint64(), tokens: 1 + w.Draw.IntN(12), prefill: w.engines[from],
		keep: handoff.Instant(2+w.Draw.IntN(10)) * handoff.Second,
	}
	if w.untroubled() {
		r.keep = 10 * handoff.Minute
	}
	w.all = append(w.all, r)
	content := handoff.Content{Scope: kv.Scope{Model: "m"}, Tokens: make([]uint32, r.tokens)}
	content.Tokens[0] = uint32(r.serial)
	r.of = content.Fingerprint(cellKey)
	if !r.prefill.alive {
		return
	}
	r.srcHome = r.prefill.home
	w.Note("%v: %d tokens from %s to %s", r, r.tokens, r.prefill.id, w.engines[to].id)
	if w.Draw.IntN(3) == 0 { // decode may be first
		w.tally.Early++
		if r.serial%2 == 0 { // by a promise: an agent without the home's clock wrote the ticket
			w.tally.Promised++
			r.ticket = handoff.Ticket{Transfer: r.id, Home: r.srcHome.self, Tokens: r.tokens, Fingerprint: r.of, Expires: handoff.Never}.Seal(cellKey)
		} else {
			r.ticket = r.srcHome.source.Issue(r.srcHome.clock(), r.offer(handoff.Computed{}))
		}
		w.After(w.Span(0, handoff.Second), nil, func() { r.accept(w.engines[to]) })
		w.After(w.Span(0, handoff.Second), r.srcHome, r.prefillDone)
	} else {
		w.After(0, r.srcHome, func() {
			r.prefillDone()
			if r.ticket != nil {
				w.After(w.Span(0, 2*handoff.Second), nil, func() { r.accept(w.engines[to]) })
			}
		})
	}
	if w.plan.cancels {
		r.regret(w.engines[to])
	}
}

func (w *world) untroubled() bool {
	c := w.plan
	c.requests, c.sluggish = 0, false
	return c == faults{}
}

// regret has one side or the other change its mind at some time.
func (r *request) regret(to *engine) {
	w := r.world
	switch w.Draw.IntN(4) {
	case 0:
		w.After(w.Span(0, 3*handoff.Second), r.srcHome, func() {
			w.tally.Withdrawn++
			w.Note("%v is withdrawn", r)
			r.srcHome.do(r.srcHome.source.Withdraw(r.srcHome.clock(), r.id))
		})
	case 1:
		w.After(w.Span(0, 3*handoff.Second), to.home, func() {
			w.tally.Cancelled++
			w.Note("%v is cancelled", r)
			to.home.do(to.home.destination.Cancel(to.home.clock(), r.id))
		})
	case 2:
		w.After(w.Span(0, 2*handoff.Second), to.home, func() {
			if r.ticket != nil {
				effects := to.home.destination.ReturnTicket(to.home.clock(), r.opened())
				w.tally.Returned++
				w.Note("the ticket of %v is returned", r)
				to.home.do(effects)
			}
		})
	}
}

// opened is the ticket, as the agent of a decode engine opens it for the same content.
func (r *request) opened() handoff.Ticket {
	ticket, err := handoff.OpenTicket(r.ticket, cellKey)
	if err != nil || ticket.Transfer != r.id || ticket.Fingerprint != r.of {
		r.world.Violate("tickets name their transfer and are of its content", "%s of %v is not %s: %v", ticket.Transfer, ticket.Fingerprint, r.id, err)
	}
	return ticket
}

func (r *request) offer(computed handoff.Computed) handoff.Offer {
	o := handoff.Offer{Transfer: r.id, Engine: r.prefill.id, Fingerprint: r.of, Tokens: r.tokens, First: r.first, Computed: computed, Keep: r.keep}
	if r.src != nil {
		o.Holding = r.holding()
	}
	return o
}

// prefillDone offers the cache, or what of it is computed so far.
func (r *request) prefillDone() {
	w, p := r.world, r.srcHome
	if !r.prefill.alive || r.prefill.home != p {
		return
	}
	if r.src = r.prefill.allocate(r, handoff.Source, r.tokens); r.src == nil {
		w.tally.NoRoom++
		w.Note("%v finds no room at %s", r, r.prefill.id)
		r.refused = true
		p.do(p.source.Withdraw(p.clock(), r.id))
		return
	}
	all := len(r.prefill.side.Geometry.Layers)
	done := handoff.Computed{Layers: all}
	switch w.Draw.IntN(4) {
	case 0:
		done.Layers = w.Draw.IntN(all + 1)
	case 1:
		if !p.host.older {
			done = handoff.Computed{Whole: w.Draw.IntN(r.tokens + 1)}
		}
	}
	chunk := r.nextChunk(done)
	for layer := range all {
		r.src.compute(layer, kv.TokenRange{End: done.Whole})
	}
	for layer := range done.Layers {
		r.src.compute(layer, kv.TokenRange{End: r.tokens})
	}
	ticket, effects, err := p.source.Offer(p.clock(), r.offer(done))
	if err != nil {
		w.tally.NoRoom++
		w.Note("%v is not offered: %v", r, err)
		r.refused = true
		r.src.free(r)
		p.do(effects)
		return
	}
	w.tally.Offered++
	if done.Layers < all {
		w.tally.Growing++
	}
	if r.ticket == nil {
		r.ticket = ticket
	}
	if w.Chance.IntN(4) == 0 { // saying it again changes nothing
		if _, more, err := p.source.Offer(p.clock(), r.offer(done)); err != nil || len(more) > 0 {
			w.Violate("repeating is safe", "a repeated offer: %d effects, %v", len(more), err)
		}
	}
	p.do(effects)
	r.goOn(chunk, done.Layers, all)
}

// nextChunk is what is computed next, layer by layer, when so much is: all tokens, if
// some layers of all of them are.
func (r *request) nextChunk(done handoff.Computed) kv.TokenRange {
	chunk := kv.TokenRange{Start: done.Whole, End: r.tokens}
	if left := chunk.Len(); done.Layers == 0 && left > 0 && !r.srcHome.host.older {
		chunk.End = chunk.Start + 1 + r.world.Draw.IntN(left)
	}
	return chunk
}

// goOn computes layer after layer, and chunk after chunk.
func (r *request) goOn(chunk kv.TokenRange, done, all int) {
	if done == all || chunk.Empty() {
		if chunk.End < r.tokens {
			r.goOn(r.nextChunk(handoff.Computed{Whole: chunk.End}), 0, all)
		}
		return
	}
	w, p, birth := r.world, r.srcHome, r.prefill.births
	w.After(w.Span(handoff.Millisecond, 300*handoff.Millisecond), p, func() {
		if r.prefill.births != birth || !r.prefill.alive || !r.src.readers[r.id] {
			return
		}
		r.src.compute(done, chunk)
		p.do(p.source.Progress(p.clock(), r.id, done+1, chunk.End))
		r.goOn(chunk, done+1, all)
	})
}

// accept has a decode engine take it.
func (r *request) accept(to *engine) {
	w := r.world
	if !to.alive {
		return
	}
	t := &attempt{request: r, decode: to, home: to.home, tokens: kv.TokenRange{Start: r.first + w.Draw.IntN(r.tokens-r.first+1), End: r.tokens}}
	if w.Draw.IntN(2) == 0 {
		t.tokens.Start = r.first
	}
	if r.first > 0 && !w.untroubled() && w.Draw.IntN(3) == 0 {
		w.tally.Greedy++
		t.greedy, t.tokens.Start = true, w.Draw.IntN(r.first)
	}
	if t.dst = to.allocate(r, handoff.Destination, r.tokens); t.dst == nil {
		effects := to.home.destination.ReturnTicket(to.home.clock(), r.opened())
		w.tally.Returned++
		w.Note("%v finds no room at %s and its ticket is returned", r, to.id)
		to.home.do(effects)
		to.home.rearm()
		return
	}
	// What is there already.
	for layer := range to.side.Geometry.Layers {
		t.dst.each(layer, kv.TokenRange{End: t.tokens.Start}, func(at *byte, made *bool, want byte) { *at, *made = want, true })
	}
	p := to.home
	patience := handoff.Instant(500+w.Draw.IntN(8000)) * handoff.Millisecond
	if w.untroubled() {
		patience = 5 * handoff.Minute
	}
	a := handoff.Accept{
		Ticket: r.opened(), Engine: to.id, Holding: t.dst.holding(), Tokens: t.tokens, Push: w.Draw.IntN(3) == 0, Deadline: p.clock() + patience,
	}
	if r.prefill.isStore() && !w.untroubled() {
		a.AnswerBy = p.clock() + patience/2 // it has what it offers
	}
	r.tries = append(r.tries, t)
	effects, err := p.destination.Accept(p.clock(), a)
	if err != nil {
		w.Note("%v is not accepted: %v", r, err)
		r.tries = r.tries[:len(r.tries)-1]
		t.dst.free(r)
		return
	}
	w.tally.Accepted++
	if a.Push {
		w.tally.Pushed++
	}
	w.Note("%v is accepted by %s, push %t", r, to.id, a.Push)
	p.do(effects)
	p.rearm()
	w.After(patience+handoff.Millisecond, p, func() {
		if !t.ready && !t.failed {
			w.Violate("nothing waits past its deadline", "%v at %s", r, to.id)
		}
	})
}

// tell is what an engine hears.
func (p *process) tell(e handoff.Event) {
	w := p.world
	r := w.request(e.Transfer)
	w.Note("%v tells %s as %v: %v is %v %s", p, e.Engine, e.As, r, e.Kind, e.Problem.Text)
	if e.As == handoff.Source {
		if e.Kind == handoff.Freed {
			w.tally.Freed++
			r.src.free(r)
		}
		return
	}
	for _, t := range r.tries {
		if t.home == p && t.decode.id == e.Engine && !t.over {
			t.hear(e)
			return
		}
	}
	w.Violate("engines are told once", "%v of %v, of which nothing is known", e.Kind, r)
}

func (t *attempt) hear(e handoff.Event) {
	w := t.request.world
	t.why = e.Problem
	switch {
	case e.Kind == handoff.Stuck:
	case e.Kind == handoff.Ready && !t.failed && !t.ready:
		t.ready, t.over = true, true
		w.tally.Ready++
		if t.greedy {
			w.Violate("nothing is read that is not held", "%v from token %d on, the offer begins at %d", t.request, t.tokens.Start, t.request.first)
		}
		if t.dst.birth == t.decode.births && t.decode.alive {
			if err := t.dst.check(t.tokens); err != nil {
				w.Violate("ready means that the bytes are there", "%v at %s: %v", t.request, t.decode.id, err)
			}
		}
		used := func() { t.dst.free(t.request) }
		if t.decode.isStore() {
			used = t.found
		}
		w.After(w.Span(0, 2*handoff.Second), nil, used)
	case e.Kind == handoff.Failed && !t.failed && !t.ready:
		t.failed = true
		w.tally.failed(e.Problem.Err())
	case e.Kind == handoff.Freed && t.failed:
		t.over = true
		w.tally.Freed++
		t.dst.free(t.request)
		if w.Draw.IntN(2) == 0 { // another engine may have more luck
			to := w.engines[w.Draw.IntN(len(w.engines))]
			if to != t.request.prefill && to.alive {
				w.tally.Elsewhere++
				w.After(w.Span(0, handoff.Second), nil, func() { t.request.accept(to) })
			}
		}
	default:
		w.Violate("engines are told once", "%v of %v, which is ready %t, failed %t, over %t", e.Kind, t.request, t.ready, t.failed, t.over)
	}
}

// inspect demands that the request has come to an end on both sides, where they
// still live.
func (r *request) inspect() {
	w := r.world
	lives := func(k *hold, p *process) bool {
		return k != nil && k.birth == k.engine.births && k.engine.alive && !p.dead && k.readers[r.id]
	}
	if lives(r.src, r.srcHome) {
		w.Violate("blocks are freed exactly once", "%v: %s still keeps its blocks", r, r.prefill.id)
	}
	for _, t := range r.tries {
		if lives(t.dst, t.home) && !t.ready {
			w.Violate("blocks are freed exactly once", "%v: %s still keeps its blocks", r, t.decode.id)
		}
		if w.untroubled() && !t.ready && !r.refused && w.Broken == nil {
			w.Violate("without trouble all goes well", "%v at %s: %s", r, t.decode.id, t.why.Text)
		}
		if t.why.Code == 0 && !t.ready && t.failed {
			w.Violate("failures are explained", "%v", r)
		}
	}
}

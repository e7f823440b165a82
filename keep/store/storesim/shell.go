package storesim

import (
	"errors"

	"meridian/keep/store/arena"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/move/checksum"
)

// grant is a writer's way to a span of an arena.
type grant struct {
	to   kv.Member
	span protocol.Span
	at   object
	// mapped says that its writer stores to the arena by itself, and has not ended.
	mapped bool
}

// object is bytes of an arena, and whose they are.
type object struct{ header, epoch uint32 }

// grant opens bytes to a writer, a while later.
func (p *process) grant(e protocol.Grant) {
	w := p.world
	at, ok := p.objectAt(e.Offset)
	if !ok {
		w.Violate("what is granted is reserved", "%v grants %d bytes at %d", p, e.Bytes, e.Offset)
		return
	}
	w.After(w.Span(0, 20*kv.Millisecond), p, func() {
		if !w.Calm && w.plan.rogues && w.Chance.IntN(10) == 0 {
			p.do(p.server.Granted(p.clock(), e.Write, protocol.Span{}, errors.New("storesim: no grant today")))
			return
		}
		g := &grant{to: e.To, at: at, span: protocol.Span{Region: 1, Offset: e.Offset, Length: e.Bytes, Grant: w.ID()}}
		p.grants[g.span.Grant] = g
		w.tally.Grants++
		w.Note("%v grants %s %d bytes at %d", p, e.To.Name, e.Bytes, e.Offset)
		p.do(p.server.Granted(p.clock(), e.Write, g.span, nil))
	})
}

// revoke ends a grant, a while later; now and then only the second time.
func (p *process) revoke(e protocol.Revoke) {
	w := p.world
	w.After(w.Span(0, 100*kv.Millisecond), p, func() {
		mapped := p.grants[e.Grant] != nil && p.grants[e.Grant].mapped
		if mapped {
			w.tally.Kept++
		}
		if mapped || !w.Calm && w.plan.rogues && w.Chance.IntN(6) == 0 {
			p.do(p.server.Revoked(p.clock(), e.Write, errors.New("storesim: a writer may still write")))
			return
		}
		delete(p.grants, e.Grant)
		w.tally.Revoked++
		w.Note("%v revokes the grant of write %d", p, e.Write)
		p.do(p.server.Revoked(p.clock(), e.Write, nil))
	})
}

// place writes what came from afar under a grant, if it still stands.
func (p *process) place(from kv.Member, id kv.ID, offset uint64, piece []byte) bool {
	g := p.grants[id]
	if g == nil || g.to != from || offset < g.span.Offset || offset+uint64(len(piece)) > g.span.Offset+g.span.Length {
		p.world.tally.Refused++
		return false
	}
	p.write(g.at, offset, piece)
	return true
}

// write changes bytes of the arena, for an object that must have them.
func (p *process) write(of object, offset uint64, piece []byte) {
	p.touched(of, offset, uint64(len(piece)), "written")
	copy(p.memory[offset:], piece)
}

// seal copies and sums a value, piece by piece.
func (p *process) seal(e protocol.Seal) {
	w := p.world
	var step func(at int)
	step = func(at int) {
		if at < len(e.Data) {
			piece := e.Data[at:min(len(e.Data), at+1+w.Chance.IntN(4000))]
			p.write(object{e.Plan.Header, e.Plan.Epoch}, e.Plan.Offset+uint64(at), piece)
			w.After(w.Span(0, 2*kv.Millisecond), p, func() { step(at + len(piece)) })
			return
		}
		p.touched(object{e.Plan.Header, e.Plan.Epoch}, e.Plan.Offset, e.Plan.Bytes, "summed")
		sum := p.heap.SumPayload(e.Plan.Offset, e.Plan.Bytes)
		p.do(p.server.Sealed(p.clock(), e.Write, sum))
	}
	w.After(w.Span(0, 20*kv.Millisecond), p, func() { step(0) })
}

// fetched is a value on its way in, out of its client's memory.
type fetched struct {
	protocol.Fetch
	until kv.Instant
	at    uint64 // how much was copied
}

// fetch copies a value piece by piece, as long as its client's memory is open and can be
// reached.
func (p *process) fetch(e protocol.Fetch) {
	f := &fetched{Fetch: e, until: p.clock() + e.For}
	p.world.After(p.world.Span(0, 20*kv.Millisecond), p, func() { p.fetchPiece(f) })
}

func (p *process) fetchPiece(f *fetched) {
	w := p.world
	switch {
	case p.clock() >= f.until:
		w.tally.SlowFetches++
		p.do(p.server.Fetched(p.clock(), f.Write, 0, protocol.ErrUnavailable))
	case f.at < f.Plan.Bytes:
		pause := w.pace()
		if !w.Calm && w.plan.slow && w.Chance.IntN(6) == 0 {
			pause = w.Span(writeTimeout/2, 2*writeTimeout)
		}
		w.After(pause, p, func() { p.takePiece(f) }) // it has begun, and the client's host is slow
	default:
		w.tally.Fetches++
		p.touched(object{f.Plan.Header, f.Plan.Epoch}, f.Plan.Offset, f.Plan.Bytes, "summed")
		p.do(p.server.Fetched(p.clock(), f.Write, p.heap.SumPayload(f.Plan.Offset, f.Plan.Bytes), nil))
	}
}

// takePiece copies a piece that was begun in time.
func (p *process) takePiece(f *fetched) {
	w, from := p.world, p.reaches(f.From)
	if from == nil || from.lent[f.Source.Grant] == nil {
		w.tally.Unfetched++
		p.do(p.server.Fetched(p.clock(), f.Write, 0, protocol.ErrUnavailable))
		return
	}
	source := from.lent[f.Source.Grant].source
	piece := source[f.at:min(f.Plan.Bytes, f.at+1+uint64(w.Chance.IntN(4000)))]
	p.write(object{f.Plan.Header, f.Plan.Epoch}, f.Plan.Offset+f.at, piece)
	f.at += uint64(len(piece))
	w.After(w.delay(p, from)+w.pace(), p, func() { p.fetchPiece(f) })
}

// delivery is an object on its way out.
type delivery struct {
	protocol.Deliver
	until kv.Instant
	bytes []byte // what has been copied
}

// deliverObject copies an object to its reader, piece by piece.
func (p *process) deliverObject(e protocol.Deliver) {
	d := &delivery{Deliver: e, until: p.clock() + e.For}
	p.deliveries[e.Read] = d
	p.world.tally.Deliveries++
	p.world.After(p.world.Span(0, 10*kv.Millisecond), p, func() { p.deliverPiece(d) })
}

func (p *process) deliverPiece(d *delivery) {
	w := p.world
	end := func(err error) {
		delete(p.deliveries, d.Read)
		p.do(p.server.Delivered(p.clock(), d.Deliver, err))
	}
	if p.clock() >= d.until {
		w.tally.SlowDeliveries++
		end(protocol.ErrUnavailable)
		return
	}
	if uint64(len(d.bytes)) < d.Location.Bytes {
		w.After(w.Span(0, 5*kv.Millisecond), p, func() { p.copyPiece(d) }) // the process may stand still before it
		return
	}
	if checksum.Of(d.bytes) != d.Location.Checksum {
		w.Violate("what is delivered is what was summed", "%v, header %d in epoch %d", p, d.Location.Header, d.Location.Epoch)
		end(arena.ErrTorn)
		return
	}
	answer := &protocol.Value{Bytes: d.Location.Bytes, Checksum: d.Location.Checksum, Landed: !d.Inline, Data: d.bytes}
	if !d.Inline {
		answer.Data = nil
		w.tally.Landed++
	}
	p.send(protocol.Send{To: d.To, Request: d.Request, Message: answer})
	end(nil)
}

// copyPiece copies a piece that was begun in time.
func (p *process) copyPiece(d *delivery) {
	w, done := p.world, uint64(len(d.bytes))
	n := min(d.Location.Bytes-done, 1+uint64(w.Chance.IntN(4000)))
	from := d.Location.Offset + done
	p.touched(object{d.Location.Header, d.Location.Epoch}, from, n, "read")
	d.bytes = append(d.bytes, p.memory[from:from+n]...)
	if !d.Inline && !p.land(d) {
		delete(p.deliveries, d.Read)
		p.do(p.server.Delivered(p.clock(), d.Deliver, protocol.ErrUnavailable))
		return
	}
	pause := w.Span(0, 5*kv.Millisecond)
	if !w.Calm && w.plan.slow && w.Chance.IntN(10) == 0 {
		pause = w.Span(0, 2*kv.Second)
	}
	w.After(pause, p, func() { p.deliverPiece(d) })
}

// lookAt sums an object where it lies.
func (p *process) lookAt(e protocol.Verify) {
	p.world.After(p.world.Span(0, 10*kv.Millisecond), p, func() {
		p.touched(object{e.Location.Header, e.Location.Epoch}, e.Location.Offset, e.Location.Bytes, "read")
		p.do(p.server.Looked(p.clock(), e, p.heap.Check(e.Location.Offset, e.Location.Bytes, e.Location.Checksum)))
	})
}

// land puts what was copied of an object where its reader wants it, if that still stands.
func (p *process) land(d *delivery) bool {
	to := p.reaches(d.To)
	if to == nil || to.lent[d.Landing.Grant] == nil {
		return false
	}
	to.lent[d.Landing.Grant].landed = d.bytes
	return true
}

// objectAt is whose reservation begins at an offset.
func (p *process) objectAt(offset uint64) (object, bool) {
	for i := range p.heap.UsedHeaders() {
		if h := p.heap.Load(i); h.PayloadBase == offset && h.Word.State() == arena.Reserved {
			return object{i, h.Word.Epoch()}, true
		}
	}
	return object{}, false
}

// touched: bytes of an arena are read or written for an object now. They must be
// that object's, and no other's.
func (p *process) touched(by object, offset, length uint64, how string) {
	w := p.world
	w.tally.Bytes += length
	own := p.heap.Load(by.header)
	if own.Word.Epoch() != by.epoch || how != "read" && own.Word.State() == arena.Dead {
		w.Violate("bytes are touched only for the object that has them", "%d bytes at %d of %v are %s for header %d in epoch %d, which is %v", length, offset, p, how,
			by.header, by.epoch, own.Word)
	}
	for i := range p.heap.UsedHeaders() {
		h := p.heap.Load(i)
		if i == by.header || h.Word.State() == arena.Dead || h.Bytes == 0 || h.PayloadBase == 0 {
			continue
		}
		if h.PayloadBase < offset+length && offset < h.PayloadBase+h.Bytes {
			w.Violate("bytes are touched only for the object that has them", "%d bytes at %d of %v are %s for header %d in epoch %d, and header %d has them, %v", length,
				offset, p, how, by.header, by.epoch, i, h.Word)
		}
	}
	for _, d := range p.deliveries {
		at := d.Location
		if how != "read" && (by != object{at.Header, at.Epoch}) && at.Offset < offset+length && offset < at.Offset+at.Bytes {
			w.Violate("bytes are touched only for the object that has them", "%d bytes at %d of %v are %s for header %d while they are being read for header %d", length,
				offset, p, how, by.header, at.Header)
		}
	}
	if how != "read" && p.held(by, offset, length) {
		w.Violate("bytes are touched only for the object that has them", "%d bytes at %d of %v are %s for header %d while they are held", length, offset, p, how, by.header)
	}
}

// forward: a header goes from reserved to dead in one epoch, and never back.
func (p *process) forward() {
	for i := range p.heap.UsedHeaders() {
		if int(i) >= len(p.words) {
			p.words = append(p.words, 0)
		}
		now, was := p.heap.Word(i), p.words[i]
		if now.Epoch() < was.Epoch() || now.Epoch() == was.Epoch() && now.State() < was.State() {
			p.world.Violate("each use of a header has an epoch of its own", "header %d of %v was %v and is %v", i, p, was, now)
		}
		p.words[i] = now
	}
}

// guarded: while a grant stands, so does its reservation.
func (p *process) guarded() {
	for _, g := range p.grants {
		if h := p.heap.Load(g.at.header); h.Word != arena.MakeWord(arena.Reserved, g.at.epoch) {
			p.world.Violate("nothing is found, or free, that a writer can still write to", "header %d of %v is %v, and %s has a grant of epoch %d", g.at.header, p,
				h.Word, g.to.Name, g.at.epoch)
		}
	}
}

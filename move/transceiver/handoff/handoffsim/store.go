package handoffsim

import (
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// newStore is an object cache: an engine of one rank, whose blocks are units at
// places of one arena. It computes nothing: it takes what others have, and gives it to
// those who want it again.
func newStore(w *world, publisher *engine) *engine {
	e := &engine{world: w, id: "store", homeOn: w.hosts[w.Draw.IntN(len(w.hosts))]}
	e.rankOn = []*host{e.homeOn}
	w.tally.Ranks++
	unit, err := reshard.UnitOf(publisher.side, 1+w.Draw.IntN(5))
	if err != nil {
		panic(err)
	}
	if e.side, err = unit.Side(unit.Bytes + reshard.PlaceBytes); err != nil {
		panic(err)
	}
	// Places are closer than agents have them, so that memory is small, and units
	// are longer than the way from one to the next.
	gap := int64(w.Draw.IntN(4))
	e.unitBytes = gap + unit.Bytes
	e.side.Offsets, e.side.BlockStride = []int64{gap}, e.unitBytes/2+1
	e.span = (e.unitBytes + e.side.BlockStride - 1) / e.side.BlockStride
	e.side.Blocks = int(40 * e.span)
	e.rise()
	return e
}

func (e *engine) isStore() bool { return e.side.BlockStride > 0 }

// unitAt is the number of the unit that a byte of the arena is in; none has the
// number of blocks.
func (e *engine) unitAt(offset int64) uint32 {
	block := offset / (e.side.BlockStride * e.span) * e.span
	if at := offset - block*e.side.BlockStride; at < e.side.Offsets[0] || at >= e.unitBytes {
		return uint32(e.side.Blocks)
	}
	return uint32(block)
}

// found: what an object cache has taken is wanted again, by one reader or more,
// each with a transfer of its own over the same units. The last one gives them
// back.
func (t *attempt) found() {
	w, k := t.request.world, t.dst
	if t.decode.births != k.birth || !t.decode.alive {
		k.free(t.request)
		return
	}
	w.tally.Kept++
	k.as = handoff.Source
	var readers []*request
	for range 1 + w.Draw.IntN(3) {
		r := &request{
			world: w, serial: len(w.all), id: w.ID(), salt: t.request.salt, tokens: t.request.tokens, prefill: t.decode, src: k, srcHome: t.decode.home,
			keep: handoff.Instant(2+w.Draw.IntN(10)) * handoff.Second, first: max(0, w.Draw.IntN(2*t.request.tokens)-t.request.tokens),
		}
		if w.untroubled() {
			r.keep = 10 * handoff.Minute
		}
		content := handoff.Content{Scope: kv.Scope{Model: "m"}, Tokens: make([]uint32, r.tokens)}
		content.Tokens[0] = uint32(r.serial)
		r.of = content.Fingerprint(cellKey)
		w.all = append(w.all, r)
		k.readers[r.id] = true
		readers = append(readers, r)
	}
	k.free(t.request)
	for _, r := range readers {
		r.read()
	}
}

// read offers what the cache has to a reader.
func (r *request) read() {
	w, p := r.world, r.srcHome
	ticket, effects, err := p.source.Offer(p.clock(), r.offer(handoff.Computed{Layers: len(r.prefill.side.Geometry.Layers)}))
	if err != nil {
		w.tally.NoRoom++
		w.Note("%v is not offered: %v", r, err)
		r.refused = true
		r.src.free(r)
		return
	}
	w.tally.Found++
	if len(r.src.readers) > 1 {
		w.tally.Shared++
	}
	w.Note("%v: %d tokens, from token %d on, are found in %s", r, r.tokens, r.first, r.prefill.id)
	r.ticket = ticket
	p.do(effects)
	p.rearm()
	to := w.engines[w.Draw.IntN(len(w.engines))]
	if to == r.prefill { // it is the last
		to = w.engines[0]
	}
	w.After(w.Span(0, 2*handoff.Second), nil, func() { r.accept(to) })
	if w.plan.cancels {
		r.regret(to)
	}
}

// holding is what the offer says of the blocks: of those before the first token
// that is held, nothing that is true.
func (r *request) holding() reshard.Holding {
	h := r.src.holding()
	clear(h.Tables[0][:r.first/r.src.engine.side.BlockTokens])
	return h
}

// stores is how many of the engines are object caches.
func (w *world) stores() int {
	return len(w.engines) - len(slices.DeleteFunc(slices.Clone(w.engines), (*engine).isStore))
}

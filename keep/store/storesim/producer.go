package storesim

import (
	"meridian/keep/store/arena"
	"meridian/kv"
)

// produce has a producer that maps an arena put something there without asking: it
// takes room, writes, seals and announces, and may die after each of these. It
// stops by itself long before its owner takes the room back.
func (w *world) produce() {
	p := w.hosts[w.Draw.IntN(len(w.hosts))].process
	k := w.keys[w.Draw.IntN(len(w.keys))]
	if p == nil || p.server == nil {
		return
	}
	v := w.newValue(k)
	r, err := p.heap.Reserve(k.hash, uint64(len(v.bytes)), len(k.name), arena.PageSize)
	if err != nil {
		return
	}
	w.tally.Produced++
	w.Note("a producer writes v%d of %v to %v, header %d epoch %d at %d", v.number, k, p, r.Index, r.Header.Word.Epoch(), r.Header.PayloadBase)
	until := w.Now + writeTimeout/2
	alive := func() bool {
		if p.dead || w.Now >= until || !w.Calm && w.Chance.IntN(15) == 0 {
			w.tally.ProducersDead++
			w.Note("the producer of v%d is gone", v.number)
			return false
		}
		return true
	}
	at := 0
	var step func()
	step = func() {
		if !alive() {
			return
		}
		if at < len(v.bytes) {
			b := v.bytes[at:min(len(v.bytes), at+1+w.Chance.IntN(4000))]
			p.write(object{r.Index, r.Header.Word.Epoch()}, r.Header.PayloadBase+uint64(at), b)
			at += len(b)
			w.After(w.Span(0, 100*kv.Millisecond), nil, step)
			return
		}
		sealed := p.heap.Seal(&r, k.name)
		if sealed && alive() {
			told := p.heap.AnnounceOf(&r, 0)
			w.After(w.Span(0, 20*kv.Millisecond), nil, func() {
				if !p.dead {
					p.heap.Tell(&told)
				}
			})
		}
	}
	step()
}

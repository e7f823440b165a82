package block

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

func expect(t *rapid.T, err error, refused bool) {
	if (err != nil) != refused {
		t.Fatalf("%v, want refused: %v", err, refused)
	}
	if err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnknown) {
		t.Fatalf("not an error of the table: %v", err)
	}
}

// among draws one of n. What rapid draws prefers small numbers, which would leave
// most of the table alone: it is stirred with how much was drawn before.
func (w *world) among(t *rapid.T, n int, what string) int {
	w.drawn++
	x := (rapid.Uint64().Draw(t, what) + w.drawn) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return int((x ^ x>>32) % uint64(n))
}

func (w *world) block(t *rapid.T) int { return w.among(t, len(w.blocks), "block") }

// blockAt draws a block, mostly one that is where an action wants it.
func (w *world) blockAt(t *rapid.T, want Location) int {
	first := w.block(t)
	for i := range w.blocks {
		if b := (first + i) % len(w.blocks); w.location(b) == want && w.among(t, 8, "take") > 0 {
			return b
		}
	}
	return first
}

func (w *world) request(t *rapid.T) *modelRequest {
	if len(w.requests) == 0 {
		w.admit(t)
	}
	return w.requests[w.among(t, len(w.requests), "request")]
}

func (w *world) admit(t *rapid.T) {
	if len(w.requests) < 6 {
		w.requests = append(w.requests, &modelRequest{handle: w.table.Admit()})
	}
}

func (w *world) hold(t *rapid.T) {
	r, b := w.request(t), w.block(t)
	tiers := []kv.Tier{kv.ThinkActive, kv.ThinkActive, kv.ThinkActive, kv.OutputCritical, kv.OutputCritical, kv.OutputCritical, kv.ThinkComplete, untiered}
	tier := tiers[w.among(t, len(tiers), "tier")]
	if slices.ContainsFunc(r.holds, func(h modelHold) bool { return h.block == b }) {
		return // an engine lists a block once
	}
	m := &w.blocks[b]
	refused := tier == kv.ThinkComplete || tier > kv.OutputCritical || r.state == Finished || r.state == Running && m.arriving || w.abandoned(b)
	expect(t, w.table.Hold(r.handle, ID(b), tier), refused)
	if refused {
		return
	}
	m.used = true
	r.holds = append(r.holds, modelHold{block: b, tier: tier, state: r.state})
	if r.state == Running {
		w.written(b)
	}
	w.settle(b)
}

func (w *world) release(t *rapid.T) {
	r, b := w.request(t), w.block(t)
	i := slices.IndexFunc(r.holds, func(h modelHold) bool { return h.block == b })
	expect(t, w.table.Release(r.handle, ID(b)), i < 0)
	if i >= 0 {
		w.blocks[b].was = r.holds[i].tier
		r.holds = slices.Delete(r.holds, i, i+1)
		w.settle(b)
	}
}

func (w *world) end(t *rapid.T) {
	r := w.request(t)
	expect(t, w.table.End(r.handle), false)
	expect(t, w.table.End(r.handle), true)
	for i := len(r.holds) - 1; i >= 0; i-- {
		h := r.holds[i]
		r.holds = r.holds[:i]
		if h.block >= 0 {
			w.blocks[h.block].was = h.tier
			w.settle(h.block)
		}
	}
	w.requests = slices.DeleteFunc(w.requests, func(other *modelRequest) bool { return other == r })
}

func (w *world) setState(t *rapid.T) {
	r := w.request(t)
	states := []State{Running, Running, Running, Paused, Paused, Paused, Forgone, Forgone, Finished, Finished + 1}
	state := states[w.among(t, len(states), "state")]
	refused := state > Finished || r.state == Finished && state != Finished
	for _, h := range r.holds {
		if state == Running && state != r.state && (h.block < 0 || w.blocks[h.block].arriving) {
			refused = true
		}
	}
	expect(t, w.table.SetState(r.handle, state), refused)
	if refused || state == r.state {
		return
	}
	r.state = state
	if state == Finished {
		r.holds = slices.DeleteFunc(r.holds, func(h modelHold) bool { return h.block < 0 })
	}
	for i := len(r.holds) - 1; i >= 0; i-- { // the end of the context first
		h := &r.holds[i]
		h.state = state
		if h.block >= 0 {
			if state == Running {
				w.written(h.block)
			}
			w.settle(h.block)
		}
	}
}

func (w *world) demote(t *rapid.T) {
	r := w.request(t)
	got, err := w.table.Demote(r.handle, nil)
	expect(t, err, false)
	var want []ID
	for i := range r.holds {
		h := &r.holds[i]
		if h.tier != kv.ThinkActive {
			continue
		}
		h.tier = kv.ThinkComplete
		if h.block < 0 {
			continue
		}
		if m := w.blocks[h.block]; m.sealed && !m.copied && !m.leaving && !m.arriving {
			want = append(want, ID(h.block))
		}
		w.settle(h.block)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("demoted to be copied %v, want %v", got, want)
	}
}

func (w *world) touch(t *rapid.T) {
	b := w.block(t)
	expect(t, w.table.Touch(ID(b)), false)
	w.clock++
	w.blocks[b].since = w.clock
}

func (w *world) seal(t *rapid.T) {
	b := w.block(t)
	expect(t, w.table.Seal(ID(b)), !w.blocks[b].used)
	w.blocks[b].sealed = w.blocks[b].used
}

func (w *world) copyOut(t *rapid.T) {
	b := w.blockAt(t, Here)
	states, _ := w.holders(b)
	refused := w.location(b) != Here || slices.Contains(states, Running) && !w.blocks[b].sealed
	expect(t, w.table.CopyOut(ID(b)), refused)
	if !refused {
		w.blocks[b].leaving = true
		w.settle(b)
	}
}

func (w *world) copiedOut(t *rapid.T) {
	b, whole := w.blockAt(t, Leaving), w.among(t, 4, "whole") > 0
	m := &w.blocks[b]
	leaving := m.leaving
	is, err := w.table.CopiedOut(ID(b), whole)
	expect(t, err, !leaving)
	if !leaving {
		return
	}
	if is != (whole && !m.stale) {
		t.Fatalf("block %d copied: %v, though whole %v and stale %v", b, is, whole, m.stale)
	}
	if is {
		w.counts.CopiedOut++
	}
	m.copied, m.leaving, m.stale = is, false, false
	w.settle(b)
}

// away draws something that a request holds, preferably elsewhere.
func (w *world) away(t *rapid.T) (r *modelRequest, i int, held Held, any bool) {
	r = w.request(t)
	all, _ := w.table.Of(r.handle, nil)
	if len(all) == 0 {
		return r, 0, held, false
	}
	i = w.among(t, len(all), "hold")
	if at := slices.IndexFunc(all, func(h Held) bool { return h.Location == Elsewhere }); at >= 0 && w.among(t, 4, "elsewhere") > 0 {
		i = at
	}
	return r, i, all[i], true
}

func (w *world) recall(t *rapid.T) {
	r, i, held, any := w.away(t)
	b := w.blockAt(t, Vacant)
	if !any || slices.ContainsFunc(r.holds, func(h modelHold) bool { return h.block == b }) {
		return // an engine lists a block once
	}
	refused := r.holds[i].block >= 0 || r.state == Running || w.abandoned(b)
	expect(t, w.table.Recall(held, ID(b)), refused)
	if refused {
		return
	}
	if m := &w.blocks[b]; !m.used {
		m.used, m.arriving, m.copied = true, true, true
	}
	r.holds[i].block = b
	w.settle(b)
}

func (w *world) arrived(t *rapid.T) {
	b, whole := w.blockAt(t, Arriving), w.among(t, 4, "whole") > 0
	m := &w.blocks[b]
	refused := !m.arriving
	expect(t, w.table.Arrived(ID(b), whole), refused)
	if refused {
		return
	}
	m.arriving = false
	if whole {
		w.counts.BroughtIn++
	} else {
		w.expel(b, true)
		m.sealed = false
	}
	w.settle(b)
}

// expel takes the holds off a block.
func (w *world) expel(b int, copyRemains bool) (lost int) {
	for _, r := range w.requests {
		kept := r.holds[:0]
		for _, h := range r.holds {
			if h.block == b {
				h.block = -1
				if r.state == Finished || !copyRemains {
					if r.state != Finished {
						lost++
					}
					continue
				}
			}
			kept = append(kept, h)
		}
		r.holds = kept
	}
	return lost
}

func (w *world) evict(t *rapid.T) {
	b := w.block(t)
	if order := w.order(); len(order) > 0 && w.among(t, 2, "in order") > 0 {
		b = int(order[0])
	}
	m := &w.blocks[b]
	states, tier := w.holders(b)
	refused := m.class == "vacant" || m.class == "stays"
	expect(t, w.table.Evict(ID(b)), refused)
	if refused {
		return
	}
	w.counts.Recomputed += uint64(w.expel(b, m.copied))
	if len(states) == 0 {
		w.counts.EvictedCached++
	} else {
		w.counts.Evicted[tier]++
	}
	*m = modelBlock{class: m.class, since: m.since, was: untiered}
	w.settle(b)
}

func (w *world) live(t *rapid.T) {
	actions := []func(*rapid.T){
		w.admit, w.hold, w.hold, w.hold, w.hold, w.hold, w.hold, w.release, w.end, w.setState, w.setState, w.setState,
		w.demote, w.touch, w.seal, w.seal, w.seal, w.evict, w.evict,
		w.copyOut, w.copyOut, w.copiedOut, w.copiedOut, w.copiedOut, w.recall, w.recall, w.arrived, w.arrived, w.evict,
	}
	w.check(t)
	for range 150 {
		actions[w.among(t, len(actions), "action")](t)
		w.check(t)
	}
}

func newWorld(t *rapid.T) *world {
	w := &world{}
	o := Options{BlockBytes: 1024, Blocks: 1 + w.among(t, 10, "blocks"), Aggressive: w.among(t, 2, "aggressive") > 0}
	o.Capacity = 1 + w.among(t, o.Blocks, "capacity")
	o.ThinkFraction = []float64{0.1, 0.4, 0.9}[w.among(t, 3, "fraction")]
	table, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	w.table, w.options, w.blocks = table, o, make([]modelBlock, o.Blocks)
	for b := range w.blocks {
		w.blocks[b].was, w.blocks[b].class = untiered, "vacant"
	}
	return w
}

func TestTableIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newWorld(t).live(t) })
}

func FuzzTable(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { newWorld(t).live(t) }))
}

// What many requests share is bounded, and ends make room again.
func TestHoldsAreBounded(t *testing.T) {
	table, err := New(Options{Blocks: 1, BlockBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := table.Admit()
	other := table.Admit()
	for range maxHolders - 1 {
		if err := table.Hold(r, 0, kv.OutputCritical); err != nil {
			t.Fatal(err)
		}
	}
	table.extra = append(table.extra, make([]hold, maxExtra-len(table.extra))...) // as if other blocks had as many
	if err := table.Hold(other, 0, kv.OutputCritical); !errors.Is(err, ErrRefused) {
		t.Errorf("one more: %v", err)
	}
	if err := table.Release(r, 0); err != nil {
		t.Fatal(err)
	}
	if err := table.Hold(other, 0, kv.OutputCritical); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

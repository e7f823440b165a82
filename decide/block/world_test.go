package block

import (
	"slices"

	"pgregory.net/rapid"

	"meridian/kv"
)

// world is a table beside a model of it that is slow and obvious.
type world struct {
	table    *Table
	options  Options
	blocks   []modelBlock
	requests []*modelRequest
	clock    int
	drawn    uint64
	counts   Counters
}

type modelBlock struct {
	used, sealed, copied, leaving, arriving, stale bool
	was                                            kv.Tier
	class                                          string
	since                                          int // when it last was used, or came into its class
}

type modelRequest struct {
	handle Request
	state  State
	holds  []modelHold // in the order of the context
}

type modelHold struct {
	block int // -1: elsewhere
	tier  kv.Tier
	state State // its request's
}

// holders are the states of a block's holders, tier its most protected one.
func (w *world) holders(b int) (states []State, tier kv.Tier) {
	for _, r := range w.requests {
		for _, h := range r.holds {
			if h.block == b {
				states = append(states, h.state)
				tier = max(tier, h.tier)
			}
		}
	}
	return states, tier
}

// classOf says again, in other words, which blocks may go.
func (w *world) classOf(b int) string {
	m := w.blocks[b]
	states, tier := w.holders(b)
	if !m.used {
		return "vacant"
	}
	if m.leaving || m.arriving || slices.Contains(states, Running) || slices.Contains(states, Paused) && !m.copied {
		return "stays"
	}
	thought := tier == kv.ThinkComplete
	if len(states) == 0 {
		thought = m.was == kv.ThinkComplete
	}
	if w.options.Aggressive && thought && (m.copied || slices.Contains(states, Forgone)) {
		return "spent"
	}
	if len(states) == 0 {
		return "cached"
	}
	return tier.String()
}

// settle makes blocks vacant that nothing keeps, and moves those whose class changed.
func (w *world) settle(changed ...int) {
	for _, b := range changed {
		m := &w.blocks[b]
		if states, _ := w.holders(b); len(states) == 0 && !m.sealed && !m.leaving && !m.arriving {
			*m = modelBlock{was: untiered, class: m.class, since: m.since}
		}
		if class := w.classOf(b); class != m.class {
			w.clock++
			m.class, m.since = class, w.clock
		}
	}
}

func (w *world) order() []ID {
	think := 0
	for b := range w.blocks {
		if states, tier := w.holders(b); len(states) > 0 && tier <= kv.ThinkActive {
			think++
		}
	}
	var order []ID
	for {
		classes := []string{"spent", "cached", "think_complete", "think_active", "output_critical"}
		if think > int(w.options.ThinkFraction*float64(w.options.Capacity)) {
			classes = []string{"spent", "think_complete", "think_active", "cached", "output_critical"}
		}
		best := -1
		for _, class := range classes {
			for b, m := range w.blocks {
				if m.class == class && !slices.Contains(order, ID(b)) && (best < 0 || m.since < w.blocks[best].since) {
					best = b
				}
			}
			if best >= 0 {
				break
			}
		}
		if best < 0 {
			return order
		}
		if states, tier := w.holders(best); len(states) > 0 && tier <= kv.ThinkActive {
			think--
		}
		order = append(order, ID(best))
	}
}

func (w *world) check(t *rapid.T) {
	want := w.counts
	want.Blocks, want.Capacity = len(w.blocks), w.options.Capacity
	for b := range w.blocks {
		states, tier := w.holders(b)
		want.Holds += len(states)
		if w.blocks[b].used {
			want.Used++
			if len(states) > 0 {
				want.Held[tier]++
			} else {
				want.Cached++
			}
		}
		at, err := w.table.Location(ID(b))
		if err != nil || at != w.location(b) {
			t.Fatalf("block %d is %v (%v), want %v", b, at, err, w.location(b))
		}
	}
	order := w.order()
	want.MayGo, want.UsedBytes = len(order), int64(want.Used)*w.options.BlockBytes
	if got := w.table.Counters(); got != want {
		t.Fatalf("counters\n%+v, want\n%+v", got, want)
	}
	if got := w.table.Victims(nil, len(w.blocks)+1); !slices.Equal(got, order) {
		t.Fatalf("victims %v, want %v", got, order)
	}
	half := order[:len(order)/2]
	if got := w.table.Victims(nil, len(half)); !slices.Equal(got, half) {
		t.Fatalf("victims of %d: %v, want %v", len(half), got, half)
	}
	next, may := w.table.Next()
	if may != (want.Used < want.Capacity) || may && w.blocks[next].used {
		t.Fatalf("next is %d, %v, with %d of %d used", next, may, want.Used, want.Capacity)
	}
	for _, r := range w.requests {
		w.checkRequest(t, r)
	}
}

func (w *world) checkRequest(t *rapid.T, r *modelRequest) {
	held, err := w.table.Of(r.handle, nil)
	if err != nil || len(held) != len(r.holds) {
		t.Fatalf("request %v has %d holds (%v), want %d", r.handle, len(held), err, len(r.holds))
	}
	for i, h := range r.holds {
		at, b := Elsewhere, ID(none)
		if h.block >= 0 {
			at, b = w.location(h.block), ID(h.block)
		}
		if held[i].Tier != h.tier || held[i].Location != at || held[i].Block != b {
			t.Fatalf("hold %d of request %v is %+v, want %+v, %v", i, r.handle, held[i], h, at)
		}
	}
}

func (w *world) location(b int) Location {
	switch m := w.blocks[b]; {
	case !m.used:
		return Vacant
	case m.arriving:
		return Arriving
	case m.leaving:
		return Leaving
	case m.copied:
		return Both
	}
	return Here
}

// abandoned blocks are kept by a transfer only.
func (w *world) abandoned(b int) bool {
	m := w.blocks[b]
	states, _ := w.holders(b)
	return len(states) == 0 && !m.sealed && (m.leaving || m.arriving)
}

// written says that a running request writes a block that is not full.
func (w *world) written(b int) {
	if m := &w.blocks[b]; !m.sealed {
		m.copied = false
		m.stale = m.leaving
	}
}

package transceiver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/move/agent"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
)

// store is an object cache on a node: an engine, and the units that were kept.
type store struct {
	*engine
	unit   reshard.Unit
	span   uint32 // places that a unit takes up
	mu     sync.Mutex
	events []handoff.Event
}

const junkByte = 0xEE

// store makes an object cache for the caches of an engine.
func (c *cell) store(publisher *engine, unitTokens int, arenaBytes int64, n *node) *store {
	c.t.Helper()
	unit, err := reshard.UnitOf(publisher.Side, unitTokens)
	if err != nil {
		c.t.Fatal(err)
	}
	side, err := unit.Side(arenaBytes)
	if err != nil {
		c.t.Fatal(err)
	}
	s := &store{unit: unit, span: uint32((unit.Bytes + reshard.PlaceBytes - 1) / reshard.PlaceBytes)}
	s.engine = &engine{Engine: handoff.Engine{ID: handoff.StorePrefix + n.member.Name, Side: side}, home: n}
	memory := c.lend(s.engine, n, uint64(arenaBytes), 1)
	s.Ranks = []handoff.Rank{{Agent: n.member, Memory: memory}}
	arena := s.memory[0][0]
	for i := range arena.Bytes(0, arena.Size()) {
		arena.Bytes(0, arena.Size())[i] = junkByte
	}
	if err := n.JoinStore(s.Engine, s.told); err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (s *store) told(e handoff.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// count is how often the cache was told something.
func (s *store) count(as handoff.Role, kind handoff.EventKind) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.As == as && e.Kind == kind {
			n++
		}
	}
	return n
}

// places puts so many units into the arena, the last first and with room between.
func (s *store) places(units int) []uint32 {
	all := make([]uint32, units)
	for i := range all {
		all[i] = uint32(units-i) * (s.span + 1)
	}
	return all
}

// keep has the cache take the full units of what an engine offers, all but those
// that it has.
func (s *store) keep(t *testing.T, from *engine, content handoff.Content, present int, units []uint32) {
	t.Helper()
	blocks := from.blocksFor(len(content.Tokens), 2)
	for layer := range from.Side.Geometry.Layers {
		from.fill(layer, blocks, kv.TokenRange{End: len(content.Tokens)})
	}
	out, err := from.home.Offer(transceiver.Offer{
		Transfer: agent.NewID(), Engine: from.ID, Content: content, Holding: holding(blocks), Layers: len(from.Side.Geometry.Layers),
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.home.accept(soon(t), shown{
		Ticket: out.Ticket, Engine: s.ID, Holding: holding(units), Present: present,
		Known: &transceiver.KnownContent{Fingerprint: content.Fingerprint(ticketKey.For(from.home.member)), Tokens: len(units) * s.unit.Tokens},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := out.Wait(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// run is the first tokens of a content, and what its owner is told of them.
func (s *store) run(content handoff.Content, tokens int) (handoff.Content, *transceiver.KnownContent) {
	content.Tokens = content.Tokens[:tokens]
	return content, &transceiver.KnownContent{Fingerprint: content.Fingerprint(ticketKey.For(s.home.member)), Tokens: tokens}
}

// find has the cache offer a run to one reader.
func (s *store) find(t *testing.T, known *transceiver.KnownContent, first int, units []uint32) *transceiver.OfferHandle {
	t.Helper()
	out, err := s.home.Offer(transceiver.Offer{
		Transfer: agent.NewID(), Engine: s.ID, Known: known, First: first, Holding: holding(units), Layers: len(s.Side.Geometry.Layers), Keep: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// untouched demands that nothing but the units was written.
func (s *store) untouched(t *testing.T, units []uint32) {
	t.Helper()
	inUnit := make([]bool, s.memory[0][0].Size())
	for _, u := range units {
		for i := range s.unit.Bytes {
			inUnit[int64(u)*reshard.PlaceBytes+i] = true
		}
	}
	for at, is := range inUnit {
		if b := s.memory[0][0].Bytes(uint64(at), 1)[0]; !is && b != junkByte {
			t.Fatalf("byte %d is in no unit, and is %#x", at, b)
		}
	}
}

// TP2 → an object cache → TP1 with other blocks and another layout, by two readers
// at once: both hold what a direct shard would have put there.
func TestThroughAStore(t *testing.T) {
	for _, fabricName := range []string{"inproc", "host", "tcp"} {
		t.Run(fabricName, func(t *testing.T) {
			c := newCell(t, fabricName)
			k, o, f := c.start("k"), c.start("o"), c.start("f")
			writer := c.engine("writer", model, shape{tp: 2, pp: 2, blockTokens: 16, blocks: 60, layout: "LBHNC"}, k)
			readers := []*engine{
				c.engine("reader", model, shape{tp: 1, pp: 1, blockTokens: 5, blocks: 120, layout: "SGLANG"}, f),
				c.engine("neighbour", model, shape{tp: 4, pp: 1, blockTokens: 32, blocks: 20, layout: "LBNHC"}, o),
			}
			s := c.store(writer, 64, 1<<20, o)
			content, units := prompt(300), s.places(4)
			s.keep(t, writer, handoff.Content{Scope: content.Scope, Tokens: content.Tokens[:130]}, 0, units[:2])
			s.keep(t, writer, content, 128, units) // only what is missing moves
			s.untouched(t, units)
			if got := s.count(handoff.Destination, handoff.Ready); got != 2 {
				t.Errorf("the cache heard %d times that something was kept", got)
			}

			run, known := s.run(content, 256)
			var wait sync.WaitGroup
			for _, reader := range readers {
				wait.Go(func() {
					blocks := reader.blocksFor(256, 1)
					out := s.find(t, known, 0, units)
					in, err := reader.home.accept(soon(t), shown{Ticket: out.Ticket, Engine: reader.ID, Content: run, Holding: holding(blocks)})
					if err == nil {
						err = in.Wait(soon(t))
					}
					if err == nil {
						err = out.Wait(soon(t))
					}
					if wrong := reader.wrong(blocks, kv.TokenRange{End: 256}); err != nil || wrong != 0 {
						t.Errorf("%s: %d bytes are wrong, %v", reader.ID, wrong, err)
					}
				})
			}
			wait.Wait()
			until.True(t, "both are freed at the source", func() bool { return s.count(handoff.Source, handoff.Freed) == 2 })
			records, err := o.Explain(lastTransfer(s))
			if err != nil || !slices.ContainsFunc(records, func(r handoff.Record) bool { return r.OfStore && r.Engine == s.ID }) {
				t.Errorf("%+v, %v", records, err)
			}
		})
	}
}

func lastTransfer(s *store) kv.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[len(s.events)-1].Transfer
}

// A run whose parts are in two caches comes in two hand-offs, each of which has
// what comes after its first token, and no more.
func TestSegments(t *testing.T) {
	c := newCell(t, "inproc")
	k, o, p, f := c.start("k"), c.start("o"), c.start("p"), c.start("f")
	writer := c.engine("writer", model, shape{tp: 2, pp: 1, blockTokens: 16, blocks: 60, layout: "LBHNC"}, k)
	reader := c.engine("reader", model, shape{tp: 1, pp: 1, blockTokens: 16, blocks: 40, layout: "LBHNC"}, f)
	head, tail := c.store(writer, 64, 1<<20, o), c.store(writer, 64, 1<<20, p)
	content := prompt(256)
	head.keep(t, writer, handoff.Content{Scope: content.Scope, Tokens: content.Tokens[:128]}, 0, head.places(2))
	units := tail.places(4)
	units[0], units[1] = 0, 0 // they are elsewhere
	tail.keep(t, writer, content, 128, units)

	blocks := reader.blocksFor(256, 1)
	accept := func(s *store, first, end, present int, units []uint32) error {
		run, known := s.run(content, end)
		out := s.find(t, known, first, units)
		in, err := f.accept(soon(t), shown{Ticket: out.Ticket, Engine: reader.ID, Content: run, Holding: holding(blocks), Present: present})
		if err != nil {
			t.Fatal(err)
		}
		return in.Wait(soon(t))
	}
	if err := accept(tail, 128, 256, 64, units); !errors.Is(err, handoff.ErrTerms) {
		t.Errorf("what the cache does not hold was read: %v", err)
	}
	for _, err := range []error{accept(head, 0, 128, 0, head.places(2)), accept(tail, 128, 256, 128, units)} {
		if err != nil {
			t.Error(err)
		}
	}
	if wrong := reader.wrong(blocks, kv.TokenRange{End: 256}); wrong != 0 {
		t.Errorf("%d bytes are wrong", wrong)
	}
}

// The owner dies while an engine keeps something, and while one reads: the first has
// its blocks back, the second computes for itself.
func TestOwnerDies(t *testing.T) {
	c := newCell(t, "inproc")
	c.pace = handoff.Timing{Lease: 300 * handoff.Millisecond}
	k, o := c.start("k"), c.start("o")
	s := shape{tp: 1, pp: 1, blockTokens: 16, blocks: 60, layout: "LBHNC"}
	engine := c.engine("engine", model, s, k)
	cache := c.store(engine, 64, 1<<20, o)
	content, units := prompt(128), cache.places(2)
	cache.keep(t, engine, content, 0, units)

	_, known := cache.run(content, 128)
	offer := transceiver.Offer{Transfer: agent.NewID(), Engine: cache.ID, Known: known, Holding: holding(units), Layers: 1} // the rest does not come
	out, err := o.Offer(offer)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	in, err := k.accept(ctx, shown{Ticket: out.Ticket, Engine: engine.ID, Content: content, Holding: holding([]uint32{0, 1, 2, 3, 4, 5, 6, 7})})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := k.Offer(transceiver.Offer{Transfer: agent.NewID(), Engine: engine.ID, Content: prompt(64), Holding: holding([]uint32{8, 9, 10, 11}), Keep: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.accept(soon(t), shown{
		Ticket: kept.Ticket, Engine: cache.ID, Holding: holding([]uint32{200}),
		Known: &transceiver.KnownContent{Fingerprint: prompt(64).Fingerprint(ticketKey.For(k.member)), Tokens: 64},
	}); err != nil {
		t.Fatal(err)
	}
	late := cache.find(t, known, 0, units)
	until.True(t, "something has moved", func() bool { return k.agent.Metrics().Done > 0 })
	c.replace(t, o)
	begun := time.Now()
	unanswered, err := k.accept(soon(t), shown{
		Ticket: late.Ticket, Engine: engine.ID, Content: content, Holding: holding([]uint32{20, 21, 22, 23, 24, 25, 26, 27}), AnswerWithin: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := unanswered.Wait(soon(t)); err == nil || time.Since(begun) > 30*time.Second {
		t.Errorf("a dead owner was waited for, %v long: %v", time.Since(begun), err)
	}
	if err := in.Wait(soon(t)); err == nil {
		t.Error("the reader has what its owner did not give")
	}
	if err := kept.Wait(soon(t)); err == nil {
		t.Error("what was to be kept was taken")
	}
	if m := k.agent.Metrics(); m.Grants != 0 {
		t.Errorf("%d grants are left", m.Grants)
	}
}

// Engines and object caches do not use up one another's limits, and units that
// readers share count once.
func TestStoresHaveLimitsOfTheirOwn(t *testing.T) {
	c := newCell(t, "inproc")
	const most = 6
	o := c.start("o", func(o *transceiver.Options) {
		o.MaxOffers, o.Stores = 2, handoff.StoreLimits{MaxHeldFraction: 0.25, MaxOffers: most}
	})
	e := c.engine("engine", model, shape{tp: 1, pp: 1, blockTokens: 16, blocks: 60, layout: "LBHNC"}, o)
	s := c.store(e, 64, 40*(64*model.BytesPerToken()), o) // ten units are a quarter
	offer := func(i int, blocks []uint32) error {
		_, known := s.run(prompt(64*len(blocks)), 64*len(blocks))
		_, err := o.Offer(transceiver.Offer{Transfer: kv.ID{9, byte(i)}, Engine: s.ID, Known: known, Holding: holding(blocks), Layers: 3})
		return err
	}
	for i := range most - 1 { // five readers of eight units
		if err := offer(i, s.places(8)); err != nil {
			t.Fatal(err)
		}
	}
	var fresh []uint32
	for i := range uint32(3) {
		fresh = append(fresh, 30*s.span+i*s.span)
	}
	if err := offer(50, fresh); !errors.Is(err, handoff.ErrDeclined) {
		t.Errorf("eleven units are held: %v", err)
	}
	if err := offer(51, fresh[:2]); err != nil {
		t.Errorf("ten units are not: %v", err)
	}
	if err := offer(52, fresh[:2]); !errors.Is(err, handoff.ErrDeclined) {
		t.Errorf("seven offers stand: %v", err)
	}
	for i := range 3 {
		_, err := o.Offer(transceiver.Offer{Transfer: kv.ID{8, byte(i)}, Engine: e.ID, Content: prompt(16), Holding: holding([]uint32{uint32(i)}), Layers: 3})
		if declined := errors.Is(err, handoff.ErrDeclined); declined != (i == 2) {
			t.Errorf("offer %d of the engine: %v", i, err)
		}
	}
	for i := range most - 1 {
		o.Withdraw(kv.ID{9, byte(i)})
	}
	if err := offer(53, fresh); err != nil {
		t.Errorf("their units are still held: %v", err)
	}
	if len(s.events) != most-1 {
		t.Errorf("the cache heard %s", fmt.Sprint(s.events))
	}
}

// What happens to an object cache is told to it alone, also while it leaves; an
// engine is none.
func TestStoresHearForThemselves(t *testing.T) {
	c := newCell(t, "inproc")
	var mu sync.Mutex
	var others []handoff.Event
	o := c.start("o", func(o *transceiver.Options) {
		o.Events = func(e handoff.Event) {
			mu.Lock()
			defer mu.Unlock()
			others = append(others, e)
		}
	})
	e := c.engine("engine", model, shape{tp: 1, pp: 1, blockTokens: 16, blocks: 60, layout: "LBHNC"}, o)
	if err := o.JoinStore(handoff.Engine{ID: "another", Side: e.Side, Ranks: e.Ranks}, func(handoff.Event) {}); err == nil {
		t.Error("an engine with dense grids is an object cache")
	}
	if err := o.Join(handoff.Engine{ID: handoff.StorePrefix + "o", Side: e.Side, Ranks: e.Ranks}); !errors.Is(err, handoff.ErrTerms) {
		t.Errorf("an engine has the id of an object cache: %v", err)
	}
	s := c.store(e, 64, 1<<20, o)
	if err := o.JoinStore(s.Engine, s.told); err == nil {
		t.Error("it is there twice")
	}
	_, known := s.run(prompt(64), 64)
	out := s.find(t, known, 0, s.places(1))
	if held := o.Metrics().StoreBytesHeld; held != s.unit.Bytes {
		t.Errorf("%d bytes are held, a unit has %d", held, s.unit.Bytes)
	}
	if err := o.Leave(soon(t), s.ID); err != nil {
		t.Fatal(err)
	}
	if err := out.Wait(soon(t)); !errors.Is(err, handoff.ErrWithdrawn) {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if held := o.Metrics().StoreBytesHeld; s.count(handoff.Source, handoff.Freed) != 1 || len(others) != 0 || held != 0 {
		t.Errorf("the cache heard %v, others %v; %d bytes are held", s.events, others, held)
	}
}

// BenchmarkFind reads a run of 896 tokens out of an object cache, of a model with an
// eighth of the layers of a large one, beside a hand-off of the same tokens.
func BenchmarkFind(b *testing.B) {
	g := kv.Uniform(10, kv.Layer{KVHeads: 8, HeadDim: 128}, kv.BFloat16)
	const tokens = 896
	for _, layout := range []string{"LBHNC", "LBNHC"} {
		for _, from := range []string{"store", "engine"} {
			b.Run(layout+"/"+from, func(b *testing.B) {
				c := newCell(b, "host")
				o, f := c.start("o"), c.start("f")
				s := shape{tp: 1, pp: 1, blockTokens: 16, blocks: tokens/16 + 1, layout: layout}
				reader, neighbour := c.engine("reader", g, s, f), c.engine("neighbour", g, s, o)
				cache := c.store(neighbour, 64, 1<<28, o)
				run, known := cache.run(prompt(tokens), tokens)
				offer := transceiver.Offer{Engine: cache.ID, Known: known, Holding: holding(cache.places(tokens / 64)), Layers: len(g.Layers)}
				if from == "engine" {
					offer.Engine, offer.Holding = neighbour.ID, holding(neighbour.blocksFor(tokens, 1))
				}
				blocks := reader.blocksFor(tokens, 1)
				b.SetBytes(tokens * g.BytesPerToken())
				for b.Loop() {
					offer.Transfer = agent.NewID()
					out, err := o.Offer(offer)
					if err != nil {
						b.Fatal(err)
					}
					in, err := f.accept(soon(b), shown{Ticket: out.Ticket, Engine: reader.ID, Content: run, Holding: holding(blocks)})
					if err == nil {
						err = in.Wait(soon(b))
					}
					if err == nil {
						err = out.Wait(soon(b))
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

package engine

import (
	"context"
	"crypto/rand"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/serve/door"
)

// fakeCache keeps prefixes for the engines of a cell, in units of its own layout. It is
// under the cell's mu.
type fakeCache struct {
	legs   []string // of all Keeps and Finds
	unit   int
	side   reshard.Side
	memory []byte
	blocks map[kv.BlockKey]uint32
	// hang: Find does not answer until this is closed.
	hang chan struct{}
	// holds: what is kept is never freed, unless the connection ends.
	holds bool
	found int
	// meanwhile happens at the engine before it hears what was found.
	meanwhile func(*Engine)
}

// newFakeCache is for the geometry of an engine.
func newFakeCache(e *Engine, unit int) *fakeCache {
	layout, err := kv.ParseLayout("BLHNC")
	if err != nil {
		panic(err)
	}
	s := &fakeCache{unit: unit, blocks: make(map[kv.BlockKey]uint32)}
	s.side = sideOf(e)
	s.side.Parallelism, s.side.Layout, s.side.BlockTokens, s.side.Blocks = kv.Split(len(s.side.Geometry.Layers), 1, 1), layout, unit, 16384/unit+1
	size, err := s.side.MemoryBytes(0)
	if err != nil {
		panic(err)
	}
	s.memory = make([]byte, size)
	return s
}

func (s *fakeCache) site() site {
	return site{s.side, func(_ int, at, size int64) []byte { return s.memory[at : at+size] }}
}

// keys are those of full units.
func (s *fakeCache) keys(scope kv.Scope, tokens []uint32) []kv.BlockKey {
	var keys []kv.BlockKey
	parent := scope.Root()
	for unit := range slices.Chunk(tokens[:len(tokens)/s.unit*s.unit], s.unit) {
		parent = kv.NextBlockKey(parent, unit)
		keys = append(keys, parent)
	}
	return keys
}

func (d *testDoor) scope(own kv.Scope) kv.Scope {
	whole := d.engine.source.scope
	whole.Salt = own.Salt
	return whole
}

func (d *testDoor) Cache() (door.CacheTerms, bool) {
	d.cell.mu.Lock()
	defer d.cell.mu.Unlock()
	if d.cell.fakeCache == nil || !d.serving {
		return door.CacheTerms{}, false
	}
	return door.CacheTerms{BlockTokens: d.cell.fakeCache.unit}, true
}

func (d *testDoor) Keep(_ context.Context, k door.Keep) error {
	c := d.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.fakeCache
	s.legs = append(s.legs, string(k.Leg))
	if !d.serving {
		return door.ErrNotServing
	}
	if c.hit(c.refuse) {
		return &door.Problem{Code: "declined", Message: "no"}
	}
	h := testHandOff{k.Transfer, false}
	d.running[h] = true
	if c.hit(c.mute) {
		d.soon(func() { d.lose(true) })
		return door.ErrNoAnswer
	}
	if s.holds {
		return nil
	}
	d.soon(func() { // when its engine may have gone on, and the request be over
		c.mu.Lock()
		defer c.mu.Unlock()
		if d.running[h] {
			s.take(d, k)
			d.end(h, door.Event{Kind: door.Freed, Transfer: k.Transfer})
		}
	})
	return nil
}

func (s *fakeCache) take(d *testDoor, k door.Keep) {
	table := make([]uint32, 0)
	first := -1
	for i, key := range s.keys(d.scope(k.Scope), k.Tokens) {
		block, there := s.blocks[key]
		if !there {
			block = uint32(len(s.blocks))
			s.blocks[key] = block
			if first < 0 {
				first = i
			}
		}
		table = append(table, block)
	}
	if first < 0 {
		return
	}
	move := cacheMove{
		from: siteOf(d.engine), to: s.site(), tokens: kv.TokenRange{Start: first * s.unit, End: len(table) * s.unit}, src: k.Tables, dst: [][]uint32{table},
	}
	if err := move.run(); err != nil {
		panic(err)
	}
}

func (d *testDoor) Find(ctx context.Context, f door.Find) (door.Found, error) {
	c := d.cell
	c.mu.Lock()
	hang := c.fakeCache.hang
	c.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return door.Found{}, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fakeCache.legs = append(c.fakeCache.legs, string(f.Leg))
	if !d.serving {
		return door.Found{}, door.ErrNotServing
	}
	if c.hit(c.refuse) {
		return door.Found{}, &door.Problem{Code: "busy", Message: "no"}
	}
	s := c.fakeCache
	var table []uint32
	for _, key := range s.keys(d.scope(f.Scope), f.Tokens) {
		block, there := s.blocks[key]
		if !there {
			break
		}
		table = append(table, block)
	}
	tokens := len(table) * s.unit
	if tokens <= f.Present {
		return door.Found{Reason: "miss"}, nil
	}
	s.found++
	if happens := s.meanwhile; happens != nil {
		d.engine.post(func() { happens(d.engine) })
	}
	var transfer [16]byte
	_, _ = rand.Read(transfer[:])
	c.offers[transfer] = &testOffer{site: s.site(), first: f.Present, Offer: door.Offer{Transfer: transfer, Tokens: f.Tokens[:tokens], Scope: f.Scope, Tables: [][]uint32{table}}}
	return door.Found{Tokens: tokens, Ticket: ticketOf(transfer)}, nil
}

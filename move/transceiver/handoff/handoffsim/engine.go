package handoffsim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// drawModel draws what all engines of a world serve.
func drawModel(r *rand.Rand) kv.Geometry {
	layer := kv.Layer{KVHeads: 1 + r.IntN(6), HeadDim: 1 + r.IntN(3)}
	return kv.Uniform(1+r.IntN(4), layer, []kv.DType{kv.Int8, kv.BFloat16}[r.IntN(2)])
}

// engine is an engine with real bytes in the memory of each of its ranks. It
// lives, dies with any of the processes it is on, and rises again.
type engine struct {
	world  *world
	id     string
	side   reshard.Side
	homeOn *host
	rankOn []*host

	births  int
	alive   bool
	members []*process // by rank, of this life
	home    *process
	epoch   uint64
	memory  [][]byte
	made    [][]bool // whether each byte of it was computed, or has arrived, for who has its block
	owners  []*hold  // of each block; nil: free
	// Of an object cache: how long a unit is, and how many block numbers it takes
	// up. Units begin at multiples of it.
	unitBytes, span int64
}

// hold is a request's hold on blocks of an engine.
type hold struct {
	request *request
	as      handoff.Role
	engine  *engine
	birth   int
	blocks  []uint32
	readers map[kv.ID]bool // the transfers that may touch them: one, but for units of an object cache
}

func newEngine(w *world, id string, model kv.Geometry) *engine {
	e := &engine{world: w, id: id, span: 1}
	r := w.Draw
	tp := 1 + r.IntN(8)
	pp := 1 + r.IntN(len(model.Layers))
	for tp*pp > 16 {
		tp--
	}
	layouts := []string{"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC", "TRTLLM_HND", "SGLANG"}
	layout, err := kv.ParseLayout(layouts[r.IntN(len(layouts))])
	if err != nil {
		panic(err)
	}
	e.side = reshard.Side{
		Geometry: model, Parallelism: kv.Split(len(model.Layers), tp, pp), Layout: layout, BlockTokens: 1 + r.IntN(5), Blocks: 40,
	}
	e.homeOn = w.hosts[r.IntN(len(w.hosts))]
	spread := r.IntN(2) == 0
	for range tp * pp {
		h := e.homeOn
		if spread {
			h = w.hosts[r.IntN(len(w.hosts))]
		}
		e.rankOn = append(e.rankOn, h)
		w.tally.Ranks++
	}
	e.rise()
	return e
}

// rise brings the engine up, if all it needs is.
func (e *engine) rise() {
	if e.alive || e.homeOn.process == nil || slices.ContainsFunc(e.rankOn, func(h *host) bool { return h.process == nil }) {
		return
	}
	e.births++
	e.epoch++
	e.alive, e.home = true, e.homeOn.process
	e.members, e.memory, e.made = nil, nil, nil
	e.owners = make([]*hold, e.side.Blocks)
	described := &handoff.Engine{ID: e.id, Side: e.side}
	for rank, h := range e.rankOn {
		size, err := e.side.MemoryBytes(rank)
		if err != nil {
			panic(err)
		}
		memory := make([]byte, size)
		for i := range memory {
			memory[i] = 0xEE
		}
		e.members, e.memory, e.made = append(e.members, h.process), append(e.memory, memory), append(e.made, make([]bool, size))
		described.Ranks = append(described.Ranks, handoff.Rank{
			Agent: h.process.self, Memory: handoff.Memory{{Region: uint64(rank), Epoch: e.epoch, Length: uint64(size)}}, Capabilities: h.capabilities(),
		})
		h.process.follower.Join(e.id, e.home.self.Name)
	}
	if err := described.Validate(); err != nil {
		panic(err)
	}
	e.home.source.Join(described)
	e.home.destination.Join(described)
	e.world.Note("%s is up, home %v, %v", e.id, e.home, e.side.Parallelism)
}

func (e *engine) livesOn(p *process) bool {
	return e.alive && (e.home == p || slices.Contains(e.members, p))
}

// fall: a process of the engine died, and with it the engine. Its memory is
// fenced everywhere, so nothing that is on its way can do harm; the others hear
// of it a while later.
func (e *engine) fall(dead *process) {
	w := e.world
	w.Note("%s is lost", e.id)
	e.alive = false
	e.epoch++
	home := e.home
	for _, p := range e.members {
		if p.dead {
			continue
		}
		w.After(w.Span(0, 500*handoff.Millisecond), p, func() {
			if !e.alive { // else it rose again, and serves already
				p.do(p.follower.Leave(e.id))
			}
		})
	}
	if home.dead {
		return
	}
	w.After(w.Span(0, 500*handoff.Millisecond), home, func() {
		home.do(home.source.Gone(home.clock(), dead.self))
		home.do(home.destination.Gone(home.clock(), dead.self))
		home.do(home.source.Leave(home.clock(), e.id))
		home.do(home.destination.Leave(home.clock(), e.id))
		home.rearm()
		e.rise()
		if e.alive && e.home == home {
			home.rearm()
		}
	})
}

// allocate takes blocks for so many tokens, wherever they are free.
func (e *engine) allocate(r *request, as handoff.Role, tokens int) *hold {
	k := &hold{request: r, as: as, engine: e, birth: e.births, readers: map[kv.ID]bool{r.id: true}}
	for _, at := range e.world.Draw.Perm(len(e.owners) / int(e.span)) {
		at *= int(e.span)
		if len(k.blocks)*e.side.BlockTokens >= tokens {
			break
		}
		if e.owners[at] == nil {
			k.blocks = append(k.blocks, uint32(at))
		}
	}
	if len(k.blocks)*e.side.BlockTokens < tokens {
		return nil
	}
	for _, b := range k.blocks {
		e.owners[b] = k
	}
	return k
}

func (k *hold) holding() reshard.Holding {
	return reshard.Holding{Tables: [][]uint32{slices.Clone(k.blocks)}}
}

// free is a request's word that its blocks are the engine's again. The last one
// gives them to another request, which scribbles on them at once.
func (k *hold) free(r *request) {
	if !k.readers[r.id] {
		k.engine.world.Violate("blocks are freed exactly once", "%v as %v, twice", r, k.as)
		return
	}
	delete(k.readers, r.id)
	if len(k.readers) > 0 {
		return
	}
	if k.birth != k.engine.births || !k.engine.alive {
		return
	}
	for _, b := range k.blocks {
		k.engine.owners[b] = nil
	}
	for layer := range k.engine.side.Geometry.Layers {
		k.each(layer, kv.TokenRange{End: len(k.blocks) * k.engine.side.BlockTokens}, func(at *byte, made *bool, _ byte) { *at, *made = 0xDD, false })
	}
}

// each visits every byte of a layer of the request, in all ranks that have it,
// with what it should hold.
func (k *hold) each(layer int, tokens kv.TokenRange, visit func(at *byte, made *bool, want byte)) {
	s := &k.engine.side
	shape := s.Geometry.Layers[layer]
	size := s.Geometry.DType.Bytes()
	for number, memory := range k.engine.memory {
		rank := s.Parallelism.Rank(number)
		first, end := s.Parallelism.Layers(rank.PP)
		if layer < first || layer >= end {
			continue
		}
		firstHead, endHead := s.Parallelism.Heads(rank.TP, shape.KVHeads)
		blocks := s.Blocks
		if k.engine.isStore() {
			blocks = 1 // each is laid out by itself
		}
		strides, err := s.Layout.Strides(kv.Extents{
			Layers: end - first, Blocks: blocks, Parts: shape.Factor(), Heads: endHead - firstHead, Tokens: s.BlockTokens, Elements: shape.HeadDim,
		})
		if err != nil {
			panic(err)
		}
		for token := tokens.Start; token < tokens.End; token++ {
			block, base := int(k.blocks[token/s.BlockTokens]), 0
			if k.engine.isStore() {
				block, base = 0, int(int64(block)*s.BlockStride+s.Offsets[0])
			}
			for part := range shape.Factor() {
				for head := firstHead; head < endHead; head++ {
					for element := range shape.HeadDim {
						at := base + int(strides.Offset(kv.Point{
							Layers: layer - first, Blocks: block, Parts: part, Heads: head - firstHead,
							Tokens: token % s.BlockTokens, Elements: element,
						}))*size
						for i := range size {
							visit(&memory[at+i], &k.engine.made[number][at+i], k.request.byteAt(layer, part, head, token, element, i))
						}
					}
				}
			}
		}
	}
}

// compute writes what prefill would.
func (k *hold) compute(layer int, tokens kv.TokenRange) {
	k.each(layer, tokens, func(at *byte, made *bool, want byte) { *at, *made = want, true })
}

// check demands that every byte of the tokens is right.
func (k *hold) check(tokens kv.TokenRange) error {
	wrong := 0
	for layer := range k.engine.side.Geometry.Layers {
		k.each(layer, tokens, func(at *byte, _ *bool, want byte) {
			if *at != want {
				wrong++
			}
		})
	}
	if wrong > 0 {
		return fmt.Errorf("%d bytes are wrong", wrong)
	}
	return nil
}

// blockAt is the block that a byte of a rank's memory belongs to.
func (e *engine) blockAt(rank int, offset int64) uint32 {
	if e.isStore() {
		return e.unitAt(offset)
	}
	s := &e.side
	at := s.Parallelism.Rank(rank)
	first, end := s.Parallelism.Layers(at.PP)
	shape := s.Geometry.Layers[0]
	firstHead, endHead := s.Parallelism.Heads(at.TP, shape.KVHeads)
	strides, err := s.Layout.Strides(kv.Extents{
		Layers: end - first, Blocks: s.Blocks, Parts: shape.Factor(), Heads: endHead - firstHead, Tokens: s.BlockTokens, Elements: shape.HeadDim,
	})
	if err != nil {
		panic(err)
	}
	element := offset / int64(s.Geometry.DType.Bytes())
	// In a dense array an index is what is left of the offset by all wider
	// strides, divided by its own.
	wider := strides.Total
	for _, stride := range []int64{strides.Layer, strides.Part, strides.Head, strides.Token, strides.Element} {
		if stride > strides.Block && stride < wider {
			wider = stride
		}
	}
	return uint32(element % wider / strides.Block)
}

// touched: a transfer touches bytes of a rank now. They must be the transfer's.
func (e *engine) touched(transfer kv.ID, as handoff.Role, rank int, offset, length int64) bool {
	size := int64(e.side.Geometry.DType.Bytes())
	for at := offset; at < offset+length; at += size {
		var k *hold
		if block := int(e.blockAt(rank, at)); block < len(e.owners) {
			k = e.owners[block]
		}
		if k == nil || !k.readers[transfer] || k.as != as {
			e.world.Violate("no block is used by another while a transfer can touch it", "transfer %.4s touches block %d of rank %d of %s as %v, which is not its own",
				transfer, e.blockAt(rank, at), rank, e.id, as)
			return false
		}
	}
	return true
}

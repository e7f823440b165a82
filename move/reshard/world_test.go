package reshard

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"meridian/kv"
)

// world is an engine with real bytes in the memory of each of its ranks. It is
// filled and checked place by place, in the order in which the places lie in
// memory. It knows no stride, no box and no run, so that it agrees with a plan only if
// both are right.
type world struct {
	side    Side
	holding Holding
	groups  []kv.Group
	memory  [][]byte
}

// content is what a place is for; no token of the request is held there if not
// held.
type content struct {
	layer, component, part, head, token, element int
	held                                         bool
}

// byteAt returns what the model would compute for this place.
func (c content) byteAt(i int) byte {
	mixed := uint64(0)
	for _, v := range [...]int{c.layer, c.component, c.part, c.head, c.token, c.element, i} {
		mixed = (mixed ^ uint64(v)) * 0x9E3779B97F4A7C15
		mixed ^= mixed >> 29
	}
	return byte(mixed >> 32)
}

// junk is what lies in memory before.
func junk(seed byte, rank, at int) byte { return byte(at)*7 ^ byte(rank) ^ seed }

// each visits every element of a rank's memory, in order, with its size.
func (w *world) each(rank, contextTokens int, visit func(c content, offset, size int)) {
	if w.side.BlockStride > 0 {
		w.eachPlace(rank, contextTokens, visit)
		return
	}
	offset := 0
	w.eachComponent(rank, contextTokens, func(_ int, p *places) { offset = p.each(offset, visit) })
	if offset != len(w.memory[rank]) {
		panic(fmt.Sprintf("rank %d has %d bytes, the world has %d", rank, len(w.memory[rank]), offset))
	}
}

// eachPlace is each of a rank whose blocks lie at places of one arena: first what
// the blocks of the request hold, then every byte between.
func (w *world) eachPlace(rank, contextTokens int, visit func(c content, offset, size int)) {
	covered := make([]bool, len(w.memory[rank]))
	w.eachComponent(rank, contextTokens, func(number int, p *places) {
		tokens := p.tokens
		p.side.Blocks = 1
		for _, block := range w.holding.Tables[0] {
			if int(block) >= w.side.Blocks {
				continue // forgotten
			}
			p.tokens = tokens[int(block)*w.side.BlockTokens:]
			p.each(int(int64(block)*w.side.BlockStride+w.side.Offsets[number]), func(c content, offset, size int) {
				for i := range size {
					if covered[offset+i] {
						panic(fmt.Sprintf("byte %d of rank %d is there twice", offset+i, rank))
					}
					covered[offset+i] = true
				}
				visit(c, offset, size)
			})
		}
	})
	for offset, is := range covered {
		if !is {
			visit(content{}, offset, 1)
		}
	}
}

// eachComponent visits the components of which a rank has layers, by their numbers.
func (w *world) eachComponent(rank, contextTokens int, visit func(number int, p *places)) {
	r := w.side.Parallelism.Rank(rank)
	firstLayer, endLayer := w.side.Parallelism.Layers(r.PP)
	number := 0
	for group, g := range w.groups {
		layers := slices.DeleteFunc(slices.Clone(g.Indices), func(l int) bool { return l < firstLayer || l >= endLayer })
		if len(layers) == 0 {
			number++
			if g.IndexBytes > 0 {
				number++
			}
			continue
		}
		firstHead, endHead := w.side.Parallelism.Heads(r.TP, g.KVHeads)
		tokens := w.deal(r, group, contextTokens)
		places := places{
			layers: layers, firstHead: firstHead, heads: endHead - firstHead, tokens: tokens, side: w.side, component: 2 * group,
			parts: g.Factor(), elements: g.HeadDim, size: w.side.Geometry.DType.Bytes(), unit: w.side.Packing.Unit,
		}
		visit(number, &places)
		number++
		if g.IndexBytes > 0 {
			places.side, places.tokens = w.side, tokens
			places.component, places.firstHead, places.heads = 2*group+1, 0, 1
			places.parts, places.elements, places.size, places.unit = 1, g.IndexBytes, 1, kv.WholeBlock
			visit(number, &places)
			number++
		}
	}
}

// deal hands the tokens of the request out to the context ranks, turn by turn,
// as cards are dealt, and returns which token lies where in the blocks of one
// of them, -1 for none.
func (w *world) deal(r kv.Rank, group, contextTokens int) []int {
	at := slices.Repeat([]int{-1}, w.side.Blocks*w.side.BlockTokens)
	if r.DP != w.holding.DP {
		return at
	}
	turn := w.side.InterleaveTokens
	if turn == 0 {
		turn = w.side.BlockTokens
	}
	table := w.holding.Tables[min(group, len(w.holding.Tables)-1)]
	mine := 0
	for token := 0; token < contextTokens; {
		for cp := range w.side.Parallelism.CP {
			for range turn {
				if token < contextTokens && cp == r.CP {
					if block := int(table[mine/w.side.BlockTokens]); block < w.side.Blocks {
						at[block*w.side.BlockTokens+mine%w.side.BlockTokens] = token
					}
					mine++
				}
				token++
			}
		}
	}
	return at
}

// places is one component of one group in one rank's memory.
type places struct {
	side                           Side
	layers                         []int
	firstHead, heads               int
	tokens                         []int
	component                      int
	parts, elements, size          int
	unit                           kv.PackedUnit
	layer, block, part, head, slot int
	element                        int
}

func (p *places) each(offset int, visit func(c content, offset, size int)) int {
	axes := p.side.Layout.Axes()
	switch p.unit { // what is packed is one opaque lump of bytes
	case kv.HeadOfBlock:
		axes = strings.Trim(strings.Map(keep("LBH"), axes), "-") + "*"
	case kv.WholeBlock:
		axes = strings.Trim(strings.Map(keep("LB"), axes), "-") + "*"
	}
	return p.walk(axes, offset, visit)
}

func keep(letters string) func(rune) rune {
	return func(r rune) rune {
		if strings.ContainsRune(letters, r) {
			return r
		}
		return -1
	}
}

// walk loops over the axes, slowest first.
func (p *places) walk(axes string, offset int, visit func(c content, offset, size int)) int {
	if axes == "" {
		token := p.tokens[p.block*p.side.BlockTokens+p.slot]
		visit(content{p.layers[p.layer], p.component, p.part, p.firstHead + p.head, token, p.element, token >= 0}, offset, p.size)
		return offset + p.size
	}
	extent, index := 0, (*int)(nil)
	switch axes[0] {
	case 'L':
		extent, index = len(p.layers), &p.layer
	case 'B':
		extent, index = p.side.Blocks, &p.block
	case 'F':
		extent, index = p.parts, &p.part
	case 'H':
		extent, index = p.heads, &p.head
	case 'N':
		extent, index = p.side.BlockTokens, &p.slot
	case 'D':
		extent, index = p.elements, &p.element
	case '*':
		extent, index = p.parts*p.side.BlockTokens*p.elements, &p.element
		if p.unit == kv.WholeBlock {
			extent *= p.heads
		}
	}
	for *index = range extent {
		offset = p.walk(axes[1:], offset, visit)
	}
	*index = 0
	return offset
}

// newWorld makes an engine whose memory holds junk.
func newWorld(t fataler, side Side, holding Holding, seed byte) *world {
	w := &world{side: side, holding: holding, groups: side.Geometry.Groups()}
	components := side.components()
	for rank := range side.Parallelism.Ranks() {
		r := side.Parallelism.Rank(rank)
		m, err := side.memory(components, cell{r.PP, r.TP})
		if err != nil {
			t.Fatal(err)
		}
		memory := make([]byte, m.bytes)
		for i := range memory {
			memory[i] = junk(seed, rank, i)
		}
		w.memory = append(w.memory, memory)
	}
	return w
}

type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// compute writes what prefill would: the live tokens of the request.
func (w *world) compute(contextTokens int) {
	for rank, memory := range w.memory {
		w.each(rank, contextTokens, func(c content, offset, size int) {
			if w.side.wants(c, kv.TokenRange{End: contextTokens}, contextTokens) {
				for i := range size {
					memory[offset+i] = c.byteAt(i)
				}
			}
		})
	}
}

// wants reports whether a place is one that a transfer of tokens fills.
func (s Side) wants(c content, tokens kv.TokenRange, contextTokens int) bool {
	if !c.held {
		return false
	}
	layer := s.Geometry.Layers[c.layer]
	dead := 0
	if layer.WindowTokens > 0 {
		dead = max(0, contextTokens-layer.WindowTokens)
	}
	if !s.Packing.Plain() || c.component%2 == 1 {
		// The place's token is the first of its block, which counts whole.
		return c.token+s.BlockTokens > max(dead, tokens.Start) && c.token < tokens.End
	}
	return c.token >= max(dead, tokens.Start) && c.token < tokens.End
}

// configuration is two engines, a request, and the order in which its bytes
// happen to arrive.
type configuration struct {
	src, dst Side
	request  Request
	order    uint64
}

func draw(t *rapid.T) configuration {
	var c configuration
	geometry := drawGeometry(t)
	c.src, c.dst = drawSide(t, "src", geometry), drawSide(t, "dst", geometry)
	for _, s := range []*Side{&c.src, &c.dst} {
		if rapid.IntRange(0, 3).Draw(t, "has places") == 0 {
			s.BlockStride = 1 // drawPlaces has the last word
		}
	}
	if packing := rapid.SampledFrom([]string{"plain", "plain", "plain", "plain", "head:x", "block:x"}).Draw(t, "packing"); packing != "plain" {
		c.pack(t, packing)
	}
	if c.src.indivisible() != "" {
		c.dst.BlockTokens = c.src.BlockTokens
		c.src.InterleaveTokens *= c.src.BlockTokens
		c.dst.InterleaveTokens *= c.dst.BlockTokens
	}
	r := &c.request
	most := 24
	if max(c.src.Parallelism.Ranks(), c.dst.Parallelism.Ranks()) > 24 {
		most = 8 // much memory to look at
	}
	r.ContextTokens = rapid.IntRange(1, most).Draw(t, "context")
	r.Tokens.End = r.ContextTokens
	if rapid.IntRange(0, 3).Draw(t, "chunked") == 0 {
		r.Tokens.End = rapid.IntRange(1, r.ContextTokens).Draw(t, "end")
	}
	if rapid.Bool().Draw(t, "prefix is there") {
		r.Tokens.Start = rapid.IntRange(0, r.Tokens.End).Draw(t, "start")
		if c.src.indivisible() != "" {
			r.Tokens.Start -= r.Tokens.Start % c.src.BlockTokens
		}
	}
	for _, s := range []*Side{&c.src, &c.dst} {
		if s.BlockStride > 0 {
			var err error
			if s.Layout, err = kv.ParseLayout("B" + strings.Replace(s.Layout.Axes(), "B", "", 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Turn, c.order = rapid.Uint64().Draw(t, "turn"), rapid.Uint64().Draw(t, "order")
	r.Src, r.Dst = drawHolding(t, "src", &c.src, r.ContextTokens), drawHolding(t, "dst", &c.dst, r.ContextTokens)
	return c
}

// pack makes both sides packed, in layouts that can be.
func (c *configuration) pack(t *rapid.T, packing string) {
	p, err := kv.ParsePacking(packing)
	if err != nil {
		t.Fatal(err)
	}
	outer, inner := "LBH", "FND"
	if p.Unit == kv.WholeBlock {
		outer, inner = "LB", "HFND"
		c.dst.Parallelism.TP, c.dst.Parallelism.CP, c.dst.Parallelism.DP = c.src.Parallelism.TP, 1, 1
	}
	for _, s := range []*Side{&c.src, &c.dst} {
		s.Packing = p
		axes := string(rapid.Permutation([]byte(outer)).Draw(t, "outer axes")) + string(rapid.Permutation([]byte(inner)).Draw(t, "inner axes"))
		if s.Layout, err = kv.ParseLayout(axes); err != nil {
			t.Fatal(err)
		}
	}
}

func drawGeometry(t *rapid.T) kv.Geometry {
	g := kv.Geometry{DType: rapid.SampledFrom([]kv.DType{kv.Float32, kv.BFloat16, kv.Int8}).Draw(t, "dtype")}
	kinds := make([]kv.Layer, rapid.IntRange(1, 2).Draw(t, "kinds"))
	for i := range kinds {
		kinds[i] = kv.Layer{
			KVHeads: rapid.SampledFrom([]int{1, 2, 3, 4, 6, 8}).Draw(t, "heads"), HeadDim: rapid.IntRange(1, 3).Draw(t, "dim"),
			WindowTokens: rapid.SampledFrom([]int{0, 0, 1, 5, 16}).Draw(t, "window"),
		}
		if rapid.IntRange(0, 3).Draw(t, "latent") == 0 {
			kinds[i].Attention, kinds[i].KVHeads = kv.Latent, 1
			kinds[i].IndexBytes = rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "index")
		}
	}
	for range rapid.IntRange(1, 5).Draw(t, "layers") {
		g.Layers = append(g.Layers, rapid.SampledFrom(kinds).Draw(t, "layer"))
	}
	return g
}

func drawSide(t *rapid.T, name string, g kv.Geometry) Side {
	s := Side{Geometry: g, BlockTokens: rapid.IntRange(1, 7).Draw(t, name+" block")}
	s.Parallelism = kv.Parallelism{
		TP: rapid.SampledFrom([]int{1, 1, 2, 2, 3, 4, 4, 6, 8, 12, 24, 64}).Draw(t, name+" tp"),
		CP: rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, name+" cp"), DP: rapid.SampledFrom([]int{1, 1, 2}).Draw(t, name+" dp"),
	}
	if s.Parallelism.TP > 8 {
		s.Parallelism.CP, s.Parallelism.DP = 1, 1
	}
	for left := len(g.Layers); left > 0; {
		n := rapid.IntRange(1, left).Draw(t, name+" stage")
		s.Parallelism.Stages = append(s.Parallelism.Stages, n)
		left -= n
	}
	axes := rapid.SampledFrom([]string{"LBHNC", "LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC", "TRTLLM_HND", "SGLANG", ""}).Draw(t, name+" layout")
	if axes == "" {
		axes = string(rapid.Permutation([]byte("LBFHND")).Draw(t, name+" axes"))
	}
	var err error
	if s.Layout, err = kv.ParseLayout(axes); err != nil {
		t.Fatal(err)
	}
	s.InterleaveTokens = rapid.SampledFrom([]int{0, 0, 1, 2, 5}).Draw(t, name+" interleave")
	return s
}

// drawHolding gives the request blocks: in line, or anywhere.
func drawHolding(t *rapid.T, name string, s *Side, contextTokens int) Holding {
	h := Holding{DP: rapid.IntRange(0, s.Parallelism.DP-1).Draw(t, name+" group")}
	turns := (contextTokens + s.turnTokens() - 1) / s.turnTokens()
	tokens := (turns + s.Parallelism.CP - 1) / s.Parallelism.CP * s.turnTokens()
	need := (tokens + s.BlockTokens - 1) / s.BlockTokens
	if s.BlockStride > 0 {
		h.Tables = [][]uint32{drawPlaces(t, name, s, need)}
		if groups := s.Geometry.Groups(); len(groups) == 1 && groups[0].WindowTokens > 0 {
			s.forget(h.Tables[0], contextTokens-groups[0].WindowTokens)
		}
		return h
	}
	s.Blocks = need + rapid.IntRange(0, 2).Draw(t, name+" spare blocks")
	groups := s.Geometry.Groups()
	tables := 1
	if rapid.Bool().Draw(t, name+" a table each") {
		tables = len(groups)
	}
	for group := range tables {
		ids := make([]uint32, s.Blocks)
		for i := range ids {
			ids[i] = uint32(i)
		}
		if rapid.Bool().Draw(t, name+" scattered") {
			ids = rapid.Permutation(ids).Draw(t, name+" blocks")
		}
		h.Tables = append(h.Tables, ids[:need])
		if tables == len(groups) && groups[group].WindowTokens > 0 {
			s.forget(ids[:need], contextTokens-groups[group].WindowTokens)
		}
	}
	return h
}

// drawPlaces lays the components of a block out, in any order and with gaps, and
// puts so many blocks at places of one arena.
func drawPlaces(t *rapid.T, name string, s *Side, need int) []uint32 {
	var sizes []int64 // of what all ranks together have, so that each has room
	for _, g := range s.Geometry.Groups() {
		sizes = append(sizes, int64(len(g.Indices)*g.Factor()*g.KVHeads*g.HeadDim*s.BlockTokens*s.Geometry.DType.Bytes()))
		if g.IndexBytes > 0 {
			sizes = append(sizes, int64(len(g.Indices)*g.IndexBytes*s.BlockTokens))
		}
	}
	order := make([]int, len(sizes))
	for i := range order {
		order[i] = i
	}
	s.Offsets = make([]int64, len(sizes))
	end := int64(0)
	for _, i := range rapid.Permutation(order).Draw(t, name+" components") {
		s.Offsets[i] = end + rapid.SampledFrom([]int64{0, 0, 1, 5}).Draw(t, name+" gap")
		end = s.Offsets[i] + sizes[i]
	}
	s.BlockStride = rapid.SampledFrom([]int64{end, end + 3, end/2 + 1, end/7 + 1}).Draw(t, name+" stride")
	span := (end + s.BlockStride - 1) / s.BlockStride
	blocks := make([]uint32, need)
	at := rapid.IntRange(0, 3).Draw(t, name+" first")
	for i := range blocks {
		blocks[i] = uint32(at)
		at += int(span) + rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, name+" distance")
	}
	s.Blocks = int(blocks[need-1]) + int(span) + rapid.IntRange(0, 2).Draw(t, name+" spare places")
	if rapid.Bool().Draw(t, name+" scattered") {
		blocks = rapid.Permutation(blocks).Draw(t, name+" blocks")
	}
	return blocks
}

// forget overwrites the entries of blocks that hold only tokens before live, as
// engines do that have given them to another request.
func (s *Side) forget(table []uint32, live int) {
	for i := range table {
		last := (i+1)*s.BlockTokens - 1
		turn := s.turnTokens()
		if (last/turn*s.Parallelism.CP+s.Parallelism.CP-1)*turn+last%turn < live {
			table[i] = 1<<32 - 1
		}
	}
}

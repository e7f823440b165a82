package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/reshard"
)

// layouts are orders of axes that differ in what lies side by side. The last two
// tear a vector apart.
var layouts = []string{"LBHNC", "LBNHC", "LHBNC", "BLHNC", "BHLNC", "TRTLLM_HND", "SGLANG", "LBHFDN", "DNHFBL"}

// odd is a model whose sizes are no multiples of anything that kernels like.
func odd(t testing.TB, headNorms bool) *Model {
	t.Helper()
	m, err := assemble(Config{
		Vocab: 45, Hidden: 37, Intermediate: 51, Layers: 3, Heads: 9, KVHeads: 3, HeadDim: 10,
		NormEpsilon: 1e-5, HeadNorms: headNorms, Tied: !headNorms, Context: 256, RoPE: RoPE{Theta: 1000}, BOS: -1,
	}, dice{7})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func drawCut(t *rapid.T, c Config, contextTokens int) Cut {
	var degrees []int
	for d := 1; d <= c.KVHeads; d++ {
		if c.KVHeads%d == 0 {
			degrees = append(degrees, d)
		}
	}
	cut := Cut{
		Parallelism: kv.Split(c.Layers, rapid.SampledFrom(degrees).Draw(t, "tp"), rapid.IntRange(1, c.Layers).Draw(t, "pp")),
		BlockTokens: rapid.IntRange(1, 40).Draw(t, "block"),
	}
	cut.Layout, _ = kv.ParseLayout(rapid.SampledFrom(layouts).Draw(t, "layout"))
	cut.Blocks = (contextTokens+cut.BlockTokens-1)/cut.BlockTokens + rapid.IntRange(0, 3).Draw(t, "spare blocks")
	return cut
}

// drawText draws tokens that any model has.
func drawText(t *rapid.T, c Config, length int) []uint32 {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "text"), 0))
	text := make([]uint32, length)
	for i := range text {
		text[i] = uint32(random.IntN(c.Vocab))
	}
	return text
}

// oneByOne is the logits after each token, computed in the plainest way.
func oneByOne(t testing.TB, m *Model, text []uint32) [][]float32 {
	e := newEngine(t, m, Cut{
		Parallelism: kv.Split(m.config.Layers, 1, 1), Layout: layout(t, "LBHNC"), BlockTokens: len(text), Blocks: 1,
	})
	var all [][]float32
	for _, token := range text {
		all = append(all, e.next(token))
	}
	return all
}

// TestEqualBits: whatever the cut, the layout, the block size, the chunks, the
// threads and the company in the batch, logits have the same bits.
func TestEqualBits(t *testing.T) {
	models := []*Model{builtin(t, "tiny"), odd(t, false), odd(t, true)}
	rapid.Check(t, func(rt *rapid.T) {
		m := rapid.SampledFrom(models).Draw(rt, "model")
		const most = 70
		texts := make([][]uint32, rapid.IntRange(1, 6).Draw(rt, "texts"))
		want := make([][][]float32, len(texts))
		for i := range texts {
			texts[i] = drawText(rt, m.config, rapid.IntRange(1, most).Draw(rt, "length"))
			want[i] = oneByOne(t, m, texts[i])
		}
		cut := drawCut(rt, m.config, most)
		perText := cut.Blocks
		cut.Blocks *= len(texts)
		e := newEngine(t, m, cut)
		e.runner.Threads = rapid.IntRange(1, 3).Draw(rt, "threads")
		done := make([]int, len(texts))
		for {
			var batch []Slice
			var who []int
			for i, text := range texts {
				left := len(text) - done[i]
				if left == 0 || (len(batch) > 0 && rapid.Bool().Draw(rt, "waits")) {
					continue
				}
				n := rapid.IntRange(1, left).Draw(rt, "chunk")
				batch = append(batch, Slice{
					Tokens: text[done[i] : done[i]+n], Start: done[i], Blocks: e.blocks[i*perText:][:perText],
					Logits: make([]float32, m.config.Vocab),
				})
				done[i] += n
				who = append(who, i)
			}
			if len(batch) == 0 {
				return
			}
			if rapid.Bool().Draw(rt, "silent") {
				batch[0].Logits = nil
			}
			if err := e.runner.Step(batch); err != nil {
				rt.Fatal(err)
			}
			for k, s := range batch {
				i := who[k]
				if s.Logits == nil {
					continue
				}
				if at := sameBits(s.Logits, want[i][done[i]-1]); at >= 0 {
					rt.Fatalf("text %d, after token %d: logit %d is %x, want %x (%v, %v)", i, done[i]-1, at,
						math.Float32bits(s.Logits[at]), math.Float32bits(want[i][done[i]-1][at]), cut.Parallelism, cut.Layout)
				}
			}
		}
	})
}

func side(c Config, cut Cut) reshard.Side {
	return reshard.Side{
		Geometry: c.Geometry(), Parallelism: cut.Parallelism, Layout: cut.Layout, BlockTokens: cut.BlockTokens, Blocks: cut.Blocks,
	}
}

// TestMemoryIsWhatPlansSay: a rank's memory has the size that resharding expects.
func TestMemoryIsWhatPlansSay(t *testing.T) {
	models := []*Model{builtin(t, "tiny"), odd(t, true)}
	rapid.Check(t, func(rt *rapid.T) {
		c := rapid.SampledFrom(models).Draw(rt, "model").config
		cut := drawCut(rt, c, rapid.IntRange(1, 300).Draw(rt, "tokens"))
		for rank := range cut.Parallelism.Ranks() {
			want, err := side(c, cut).MemoryBytes(rank)
			if got := cut.MemoryBytes(c, rank); got != want || err != nil {
				rt.Fatalf("rank %d: %d bytes, a plan says %d (%v)", rank, got, want, err)
			}
		}
	})
}

// move copies a text's cache from one engine to another, as a plan says.
func move(t *rapid.T, from, to *engine, cuts [2]Cut, tokens kv.TokenRange) {
	c := from.runner.model.config
	shape, err := reshard.Prepare(side(c, cuts[0]), side(c, cuts[1]))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := shape.Plan(reshard.Request{
		Tokens: tokens, Src: reshard.Holding{Tables: [][]uint32{from.blocks}}, Dst: reshard.Holding{Tables: [][]uint32{to.blocks}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, flow := range plan.Flows() {
		for run := range flow.Runs() {
			for i := range run.Count {
				copy(to.memory[flow.Dst][run.Dst+i*run.DstStride:][:run.Length], from.memory[flow.Src][run.Src+i*run.SrcStride:][:run.Length])
			}
		}
	}
}

// TestHandOff: a prompt computed under one cut, moved by a plan, goes on under
// another with the same bits.
func TestHandOff(t *testing.T) {
	models := []*Model{builtin(t, "tiny"), odd(t, false), odd(t, true)}
	rapid.Check(t, func(rt *rapid.T) {
		m := rapid.SampledFrom(models).Draw(rt, "model")
		text := drawText(rt, m.config, rapid.IntRange(2, 80).Draw(rt, "length"))
		prompt := rapid.IntRange(1, len(text)-1).Draw(rt, "prompt")
		want := oneByOne(t, m, text)
		cuts := [2]Cut{drawCut(rt, m.config, len(text)), drawCut(rt, m.config, len(text))}
		prefill, decode := newEngine(t, m, cuts[0]), newEngine(t, m, cuts[1])
		prefill.feed(text[:prompt], nil)
		move(rt, prefill, decode, cuts, kv.TokenRange{Start: 0, End: prompt})
		decode.length = prompt
		for i := prompt; i < len(text); i++ {
			if at := sameBits(decode.next(text[i]), want[i]); at >= 0 {
				rt.Fatalf("after token %d of %d: logit %d differs (%v %v → %v %v)", i, len(text), at,
					cuts[0].Parallelism, cuts[0].Layout, cuts[1].Parallelism, cuts[1].Layout)
			}
		}
	})
}

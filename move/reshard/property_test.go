package reshard

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

// manyChecks makes rapid try so many configurations, unless -rapid.checks
// asks for another number.
func manyChecks(t *testing.T, checks string) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	if before != f.DefValue {
		return
	}
	if err := flag.Set("rapid.checks", checks); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { flag.Set("rapid.checks", before) })
}

type oneCopy struct {
	src, dst             int
	srcOffset, dstOffset int64
	length               int64
}

// copies writes a plan out, one copy after the other.
func copies(p *Plan) []oneCopy {
	var all []oneCopy
	for _, f := range p.Flows() {
		for r := range f.Runs() {
			for i := range r.Count {
				all = append(all, oneCopy{f.Src, f.Dst, r.Src + i*r.SrcStride, r.Dst + i*r.DstStride, r.Length})
			}
		}
	}
	return all
}

// move does the copies and counts how often each destination byte was written.
func move(t fataler, all []oneCopy, from, to *world) [][]uint8 {
	written := make([][]uint8, len(to.memory))
	for rank := range written {
		written[rank] = make([]uint8, len(to.memory[rank]))
	}
	for _, p := range all {
		if p.length < 1 || p.srcOffset < 0 || p.dstOffset < 0 ||
			p.srcOffset+p.length > int64(len(from.memory[p.src])) || p.dstOffset+p.length > int64(len(to.memory[p.dst])) {
			t.Fatalf("%+v is outside of memory", p)
		}
		copy(to.memory[p.dst][p.dstOffset:], from.memory[p.src][p.srcOffset:p.srcOffset+p.length])
		for i := range p.length {
			written[p.dst][p.dstOffset+i]++
		}
	}
	return written
}

// arrived demands that a world holds exactly what a transfer should have left:
// every wanted byte, written once, and nothing else touched.
func (w *world) arrived(t fataler, seed byte, written [][]uint8, r Request) (wanted int64) {
	for rank, memory := range w.memory {
		w.each(rank, r.ContextTokens, func(c content, offset, size int) {
			filled := w.side.wants(c, r.Tokens, r.ContextTokens)
			for i := range size {
				at, want, writes := offset+i, junk(seed, rank, offset+i), uint8(0)
				if filled {
					want, writes = c.byteAt(i), 1
					wanted++
				}
				if memory[at] != want || written[rank][at] != writes {
					t.Fatalf("rank %d, byte %d (%+v): holds %#x after %d writes, want %#x after %d", rank, at, c, memory[at], written[rank][at], want, writes)
				}
			}
		})
	}
	return wanted
}

func mustPlan(t fataler, src, dst Side, r Request) *Plan {
	shape, err := Prepare(src, dst)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := shape.Plan(r)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// transfers is the law: what a plan moves is the shard of the whole tensor,
// every byte once and in any order, there and back again.
func transfers(t fataler, c configuration) {
	plan := mustPlan(t, c.src, c.dst, c.request)

	prefill := newWorld(t, c.src, c.request.Src, 0x55)
	prefill.compute(c.request.ContextTokens)
	if size, err := c.src.MemoryBytes(0); err != nil || size != int64(len(prefill.memory[0])) {
		t.Fatalf("rank 0 has %d bytes, %v, want %d", size, err, len(prefill.memory[0]))
	}
	decode := newWorld(t, c.dst, c.request.Dst, 0xAA)
	all := copies(plan)
	random := rand.New(rand.NewPCG(1, c.order))
	random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	written := move(t, all, prefill, decode)
	wanted := decode.arrived(t, 0xAA, written, c.request)
	if plan.Bytes() != wanted {
		t.Fatalf("the plan says %d bytes, %d are wanted", plan.Bytes(), wanted)
	}
	views(t, c, plan)
	counted(t, plan)

	back := c.request
	back.Src, back.Dst = c.request.Dst, c.request.Src
	returned := newWorld(t, c.src, c.request.Src, 0x33)
	written = move(t, copies(mustPlan(t, c.dst, c.src, back)), decode, returned)
	returned.arrived(t, 0x33, written, back)
}

// views demands that what ranks send and what ranks receive are the same, and
// that two who plan apart from each other agree.
func views(t fataler, c configuration, plan *Plan) {
	theirs := mustPlan(t, c.src, c.dst, c.request)
	if theirs.Digest() != plan.Digest() {
		t.Fatalf("digests %v and %v of one plan", plan.Digest(), theirs.Digest())
	}
	type run struct {
		src, dst int
		Run
	}
	list := func(flows []Flow) (all []run) {
		for _, f := range flows {
			for r := range f.Runs() {
				all = append(all, run{f.Src, f.Dst, r})
			}
		}
		return all
	}
	var sent, received []run
	for rank := range c.src.Parallelism.Ranks() {
		for _, f := range plan.From(rank) {
			if f.Src != rank {
				t.Fatalf("a flow from rank %d is among those of rank %d", f.Src, rank)
			}
		}
		sent = append(sent, list(plan.From(rank))...)
	}
	for rank := range c.dst.Parallelism.Ranks() {
		received = append(received, list(incoming(theirs, rank))...)
	}
	slices.SortStableFunc(received, func(a, b run) int {
		if a.src != b.src {
			return a.src - b.src
		}
		return a.dst - b.dst
	})
	if !slices.Equal(sent, received) || !slices.Equal(sent, list(plan.Flows())) {
		t.Fatalf("sent %v, received %v", sent, received)
	}
}

// counted demands that sums are what they say, as a whole and layer by layer.
func counted(t fataler, plan *Plan) {
	for _, f := range plan.Flows() {
		var bytes, runs, count int64
		for r := range f.Runs() {
			bytes += r.Length * r.Count
			count += r.Count
			runs++
		}
		if gotRuns, gotPieces := f.CountRuns(); f.Bytes() != bytes || gotRuns != runs || gotPieces != count {
			t.Fatalf("%d bytes in %d runs of %d pieces, there are %d in %d of %d", f.Bytes(), gotRuns, gotPieces, bytes, runs, count)
		}
		var byLayer int64
		for layer := range plan.Shape().Src().Geometry.Layers {
			one := f.Layers(layer, layer+1)
			for r := range one.Runs() {
				byLayer += r.Length * r.Count
			}
			bytes -= one.Bytes()
		}
		if byLayer != f.Bytes() || bytes != 0 {
			t.Fatalf("layer by layer %d bytes, together %d", byLayer, f.Bytes())
		}
	}
}

func TestTransferIsTheShardOfTheWhole(t *testing.T) {
	manyChecks(t, "2000")
	rapid.Check(t, func(t *rapid.T) { transfers(t, draw(t)) })
}

// FuzzTransfer is the same for as long as one likes. Every execution is a whole
// configuration; its number brings it back.
func FuzzTransfer(f *testing.F) {
	configurations := rapid.Custom(draw)
	f.Add(0)
	f.Fuzz(func(t *testing.T, number int) { transfers(t, configurations.Example(number)) })
}

// Layers that move as they are computed come to the same as all at once.
func TestLayerByLayerIsTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		plan := mustPlan(t, c.src, c.dst, c.request)
		prefill := newWorld(t, c.src, c.request.Src, 0x55)
		prefill.compute(c.request.ContextTokens)
		whole, stepwise := newWorld(t, c.dst, c.request.Dst, 0xAA), newWorld(t, c.dst, c.request.Dst, 0xAA)
		move(t, copies(plan), prefill, whole)
		layers := len(c.src.Geometry.Layers)
		for first := 0; first < layers; {
			end := rapid.IntRange(first+1, layers).Draw(t, "end")
			part := &Plan{}
			for _, f := range plan.Flows() {
				part.flows = append(part.flows, f.Layers(first, end))
			}
			move(t, copies(part), prefill, stepwise)
			first = end
		}
		for rank := range whole.memory {
			if !bytes.Equal(whole.memory[rank], stepwise.memory[rank]) {
				t.Fatalf("rank %d differs", rank)
			}
		}
	})
}

// Chunks that move as they are computed come to the same as all at once, and nothing
// is read of a token before it was.
func TestChunkByChunkIsTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := draw(t)
		plan := mustPlan(t, c.src, c.dst, c.request)
		prefill := newWorld(t, c.src, c.request.Src, 0x55)
		prefill.compute(c.request.ContextTokens)
		whole, stepwise := newWorld(t, c.dst, c.request.Dst, 0xAA), newWorld(t, c.dst, c.request.Dst, 0xAA)
		move(t, copies(plan), prefill, whole)
		var bytesMoved int64
		for first := 0; first < c.request.ContextTokens; {
			end := rapid.IntRange(first+1, c.request.ContextTokens).Draw(t, "end")
			computed := newWorld(t, c.src, c.request.Src, 0x55)
			computed.compute(end)
			part := &Plan{}
			for _, f := range plan.Flows() {
				some, err := f.Tokens(kv.TokenRange{Start: first, End: end})
				if err != nil {
					t.Fatal(err)
				}
				part.flows = append(part.flows, some)
				bytesMoved += some.Bytes()
			}
			move(t, copies(part), computed, stepwise)
			first = end
		}
		if bytesMoved != plan.Bytes() {
			t.Fatalf("%d bytes in chunks, %d in all", bytesMoved, plan.Bytes())
		}
		for rank := range whole.memory {
			if !bytes.Equal(whole.memory[rank], stepwise.memory[rank]) {
				t.Fatalf("rank %d differs", rank)
			}
		}
	})
}

// Copies of a head take turns: for each set of them the numbers of destination
// ranks they serve differ by at most one, and turns go on with the request.
func TestReplicasShareTheLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layers := rapid.IntRange(1, 4).Draw(t, "layers")
		heads := rapid.IntRange(1, 8).Draw(t, "heads")
		side := func(name string) Side {
			s := Side{
				Geometry: kv.Uniform(layers, kv.Layer{KVHeads: heads, HeadDim: 2}, kv.Int8), BlockTokens: 1, Blocks: 64,
				Parallelism: kv.Split(layers, rapid.IntRange(1, 64).Draw(t, name+" tp"), rapid.IntRange(1, layers).Draw(t, name+" pp")),
			}
			s.Parallelism.CP = rapid.IntRange(1, 3).Draw(t, name+" cp")
			s.Layout, _ = kv.ParseLayout("LBHNC")
			return s
		}
		src, dst := side("src"), side("dst")
		table := make([]uint32, 64)
		for i := range table {
			table[i] = uint32(i)
		}
		served := func(turn uint64) map[int]int {
			plan := mustPlan(t, src, dst, Request{
				Tokens: kv.TokenRange{End: 12}, Src: Holding{Tables: [][]uint32{table}}, Dst: Holding{Tables: [][]uint32{table}}, Turn: turn,
			})
			count := make(map[int]int)
			for _, f := range plan.Flows() {
				count[f.Src]++
			}
			return count
		}
		turn := rapid.Uint64Max(1<<63).Draw(t, "turn")
		now, next := served(turn), served(turn+1)
		for _, owners := range ownersOf(src.Parallelism, heads) {
			if owners.len() == 1 {
				continue
			}
			for stage := range src.Parallelism.Stages {
				for cp := range src.Parallelism.CP {
					rank := func(tp int) int { return src.Parallelism.Index(kv.Rank{PP: stage, TP: tp, CP: cp}) }
					least, most := 1<<30, 0
					for tp := owners.first; tp < owners.end; tp++ {
						least, most = min(least, now[rank(tp)]), max(most, now[rank(tp)])
						before := owners.first + (tp-owners.first+owners.len()-1)%owners.len()
						if next[rank(tp)] != now[rank(before)] {
							t.Fatalf("the next request gives rank %d the turns %d, this one gave rank %d the turns %d", rank(tp), next[rank(tp)], rank(before), now[rank(before)])
						}
					}
					if most-least > 1 {
						t.Fatalf("copies of one head serve between %d and %d destinations", least, most)
					}
				}
			}
		}
	})
}

// incoming is what a destination rank receives.
func incoming(p *Plan, dst int) []Flow {
	return slices.DeleteFunc(slices.Clone(p.Flows()), func(f Flow) bool { return f.Dst != dst })
}

package reshard

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/kv"
)

func layout(t testing.TB, name string) kv.Layout {
	t.Helper()
	l, err := kv.ParseLayout(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func cutAs(t testing.TB, text string, layers int) kv.Parallelism {
	t.Helper()
	p, err := kv.ParseParallelism(text, layers)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func inLine(blocks int) Holding {
	table := make([]uint32, blocks)
	for i := range table {
		table[i] = uint32(i)
	}
	return Holding{Tables: [][]uint32{table}}
}

// taken lists what goes from rank to rank as "layers a–b, heads c–d", read off
// the bytes that move: every element of this model tells its layer and head.
func taken(t testing.TB, plan *Plan, tokens int) map[string]string {
	t.Helper()
	src := plan.Shape().Src()
	from := newWorld(t, src, inLine(src.Blocks), 0)
	found := make(map[string]string)
	for _, f := range plan.Flows() {
		layers, heads := make(map[int]bool), make(map[int]bool)
		moved := make([]bool, len(from.memory[f.Src]))
		for r := range f.Runs() {
			for i := range r.Count {
				for b := range r.Length {
					moved[r.Src+i*r.SrcStride+b] = true
				}
			}
		}
		from.each(f.Src, tokens, func(c content, offset, _ int) {
			if moved[offset] {
				layers[c.layer], heads[c.head] = true, true
			}
		})
		found[fmt.Sprintf("%d→%d", f.Src, f.Dst)] = fmt.Sprintf("layers %v, heads %v", slices.Sorted(maps.Keys(layers)), slices.Sorted(maps.Keys(heads)))
	}
	return found
}

// The rules that TensorRT-LLM's cache transmission follows (cacheSplitConcat.cu,
// cacheFormatter.cpp), and cases that it and others refuse.
func TestWhoSendsWhatToWhom(t *testing.T) {
	for _, c := range []struct {
		name          string
		layers, heads int
		attention     kv.Attention
		from, to      string
		turn          uint64
		want          map[string]string
	}{
		{
			name: "copies at the destination", layers: 1, heads: 4, from: "tp=2", to: "tp=8", want: map[string]string{
				"0→0": "layers [0], heads [0]", "0→1": "layers [0], heads [0]", "0→2": "layers [0], heads [1]", "0→3": "layers [0], heads [1]",
				"1→4": "layers [0], heads [2]", "1→5": "layers [0], heads [2]", "1→6": "layers [0], heads [3]", "1→7": "layers [0], heads [3]",
			},
		},
		{
			name: "copies at the source, ranks 1, 3, 5 and 7 send nothing", layers: 1, heads: 4, from: "tp=8", to: "tp=2", want: map[string]string{
				"0→0": "layers [0], heads [0]", "2→0": "layers [0], heads [1]", "4→1": "layers [0], heads [2]", "6→1": "layers [0], heads [3]",
			},
		},
		{
			name: "the next request has them send", layers: 1, heads: 4, from: "tp=8", to: "tp=2", turn: 1, want: map[string]string{
				"1→0": "layers [0], heads [0]", "3→0": "layers [0], heads [1]", "5→1": "layers [0], heads [2]", "7→1": "layers [0], heads [3]",
			},
		},
		{
			name: "uneven stages", layers: 7, heads: 2, from: "tp=2,pp=4+3", to: "tp=1,pp=3+2+2", want: map[string]string{
				"0→0": "layers [0 1 2], heads [0]", "1→0": "layers [0 1 2], heads [1]",
				"0→1": "layers [3], heads [0]", "2→1": "layers [4], heads [0]", "1→1": "layers [3], heads [1]", "3→1": "layers [4], heads [1]",
				"2→2": "layers [5 6], heads [0]", "3→2": "layers [5 6], heads [1]",
			},
		},
		{
			name: "stages and context ranks", layers: 2, heads: 1, from: "tp=1", to: "pp=2,cp=2", want: map[string]string{
				"0→0": "layers [0], heads [0]", "0→1": "layers [0], heads [0]", "0→2": "layers [1], heads [0]", "0→3": "layers [1], heads [0]",
			},
		},
		{
			name: "two KV heads, one rank to four", layers: 1, heads: 2, from: "tp=1", to: "tp=4", want: map[string]string{
				"0→0": "layers [0], heads [0]", "0→1": "layers [0], heads [0]", "0→2": "layers [0], heads [1]", "0→3": "layers [0], heads [1]",
			},
		},
		{
			name: "nothing divides anything", layers: 1, heads: 8, from: "tp=3", to: "tp=5", want: map[string]string{
				"0→0": "layers [0], heads [0]", "0→1": "layers [0], heads [1]", "1→1": "layers [0], heads [2]", "1→2": "layers [0], heads [3]",
				"1→3": "layers [0], heads [4]", "2→3": "layers [0], heads [5]", "2→4": "layers [0], heads [6 7]",
			},
		},
		{
			name: "a latent has no heads to split", layers: 1, heads: 1, attention: kv.Latent, from: "tp=4", to: "tp=2", want: map[string]string{
				"0→0": "layers [0], heads [0]", "1→1": "layers [0], heads [0]",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			geometry := kv.Uniform(c.layers, kv.Layer{Attention: c.attention, KVHeads: c.heads, HeadDim: 2}, kv.Int8)
			src := Side{Geometry: geometry, Parallelism: cutAs(t, c.from, c.layers), Layout: layout(t, "LBHNC"), BlockTokens: 4, Blocks: 4}
			dst := Side{Geometry: geometry, Parallelism: cutAs(t, c.to, c.layers), Layout: layout(t, "LBHNC"), BlockTokens: 4, Blocks: 4}
			plan := mustPlan(t, src, dst, Request{Tokens: kv.TokenRange{End: 16}, Src: inLine(4), Dst: inLine(4), Turn: c.turn})
			if diff := cmp.Diff(c.want, taken(t, plan, 16)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A whole model in line is one run between two ranks, however many layers,
// blocks and tokens it has; these are written out by hand.
func TestRunsByHand(t *testing.T) {
	geometry := kv.Uniform(2, kv.Layer{KVHeads: 2, HeadDim: 4}, kv.BFloat16)
	side := func(cut, order string, blockTokens, blocks int) Side {
		return Side{Geometry: geometry, Parallelism: cutAs(t, cut, 2), Layout: layout(t, order), BlockTokens: blockTokens, Blocks: blocks}
	}
	tests := []struct {
		name     string
		src, dst Side
		request  Request
		want     map[string][]Run
	}{
		{
			"alike", side("tp=1", "LBHNC", 4, 3), side("tp=1", "LBHNC", 4, 3),
			Request{Tokens: kv.TokenRange{End: 12}, Src: inLine(3), Dst: inLine(3)},
			map[string][]Run{"0→0": {{Length: 2 * 3 * 2 * 4 * 16, Count: 1}}},
		},
		{
			// A head of a block is 4 tokens × 16 bytes. The source rank has them side
			// by side, the destination every second.
			"two ranks to one", side("tp=2", "LBHNC", 4, 3), side("tp=1", "LBHNC", 4, 3),
			Request{Tokens: kv.TokenRange{End: 12}, Src: inLine(3), Dst: inLine(3)},
			map[string][]Run{
				"0→0": {{Length: 64, Count: 6, SrcStride: 64, DstStride: 128}},
				"1→0": {{Dst: 64, Length: 64, Count: 6, SrcStride: 64, DstStride: 128}},
			},
		},
		{
			// Tokens 3…5: one token of block 5, two of block 2; into a block of 8.
			"a partial block", side("tp=1", "LBNHC", 4, 6), side("tp=1", "LBNHC", 8, 1),
			Request{
				Tokens: kv.TokenRange{Start: 3, End: 6}, Src: Holding{Tables: [][]uint32{{5, 2}}}, Dst: Holding{Tables: [][]uint32{{0}}},
			},
			map[string][]Run{"0→0": {
				{Src: 5*128 + 3*32, Dst: 3 * 32, Length: 32, Count: 2, SrcStride: 6 * 128, DstStride: 256},
				{Src: 2 * 128, Dst: 4 * 32, Length: 64, Count: 2, SrcStride: 6 * 128, DstStride: 256},
			}},
		},
		{
			// Blocks of 2 into blocks of 4: even ones to the first half, odd ones to the
			// second, each a block run of its own.
			"smaller blocks into larger", side("pp=2", "BLNHC", 2, 4), side("pp=2", "BLNHC", 4, 2),
			Request{Tokens: kv.TokenRange{End: 8}, Src: inLine(4), Dst: inLine(2)},
			map[string][]Run{
				"0→0": {{Length: 64, Count: 2, SrcStride: 128, DstStride: 128}, {Src: 64, Dst: 64, Length: 64, Count: 2, SrcStride: 128, DstStride: 128}},
				"1→1": {{Length: 64, Count: 2, SrcStride: 128, DstStride: 128}, {Src: 64, Dst: 64, Length: 64, Count: 2, SrcStride: 128, DstStride: 128}},
			},
		},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			got := make(map[string][]Run)
			for _, f := range mustPlan(t, c.src, c.dst, c.request).Flows() {
				got[fmt.Sprintf("%d→%d", f.Src, f.Dst)] = slices.Collect(f.Runs())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

package transceiver

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/fabric"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// drawMemory cuts a rank's memory into extents of several regions, in any order
// and with gaps.
func drawMemory(t *rapid.T, name string, size uint64) (m handoff.Memory, regions map[uint64][]byte) {
	regions = make(map[uint64][]byte)
	for left := size; left > 0; {
		x := handoff.Extent{Region: rapid.Uint64Range(1, 3).Draw(t, name+" region"), Epoch: 1, Length: rapid.Uint64Range(1, left).Draw(t, name+" length")}
		x.Offset = uint64(len(regions[x.Region])) + rapid.Uint64Range(0, 5).Draw(t, name+" gap")
		regions[x.Region] = append(regions[x.Region], make([]byte, x.Offset+x.Length-uint64(len(regions[x.Region])))...)
		m = append(m, x)
		left -= x.Length
	}
	return m, regions
}

// linear is a rank's memory as the planner sees it.
func linear(m handoff.Memory, regions map[uint64][]byte) (all []byte) {
	for _, x := range m {
		all = append(all, regions[x.Region][x.Offset:x.Offset+x.Length]...)
	}
	return all
}

func drawSide(t *rapid.T, name string, g kv.Geometry) reshard.Side {
	layout, err := kv.ParseLayout(rapid.SampledFrom([]string{"LBHNC", "LBNHC", "BLHNC", "SGLANG", "TRTLLM_HND"}).Draw(t, name+" layout"))
	if err != nil {
		t.Fatal(err)
	}
	return reshard.Side{
		Geometry: g, Layout: layout, BlockTokens: rapid.IntRange(1, 5).Draw(t, name+" block"), Blocks: 16,
		Parallelism: kv.Split(len(g.Layers), rapid.IntRange(1, 4).Draw(t, name+" tp"), rapid.IntRange(1, len(g.Layers)).Draw(t, name+" pp")),
	}
}

func drawBlocks(t *rapid.T, name string) []uint32 {
	all := make([]uint32, 16)
	for i := range all {
		all[i] = uint32(i)
	}
	return rapid.Permutation(all).Draw(t, name+" blocks")
}

// What batches move between extents is what the flow's runs move between whole
// memories, byte for byte, and no destination byte comes twice.
func TestBatchesAreTheFlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := kv.Uniform(rapid.IntRange(1, 3).Draw(t, "layers"), kv.Layer{KVHeads: rapid.IntRange(1, 4).Draw(t, "heads"), HeadDim: 2}, kv.BFloat16)
		src, dst := drawSide(t, "src", g), drawSide(t, "dst", g)
		shape, err := reshard.Prepare(src, dst)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := shape.Plan(reshard.Request{
			Tokens: kv.TokenRange{End: rapid.IntRange(1, 16).Draw(t, "tokens")},
			Src:    reshard.Holding{Tables: [][]uint32{drawBlocks(t, "src")}}, Dst: reshard.Holding{Tables: [][]uint32{drawBlocks(t, "dst")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, flow := range plan.Flows() {
			checkBatches(t, src, dst, flow)
		}
	})
}

func checkBatches(t *rapid.T, src, dst reshard.Side, flow reshard.Flow) {
	srcBytes, _ := src.MemoryBytes(flow.Src)
	dstBytes, _ := dst.MemoryBytes(flow.Dst)
	from, fromRegions := drawMemory(t, "src", uint64(srcBytes))
	to, toRegions := drawMemory(t, "dst", uint64(dstBytes))
	for id, region := range fromRegions {
		for i := range region {
			region[i] = byte(i*7) ^ byte(id)
		}
	}
	source, want := linear(from, fromRegions), linear(to, toRegions)
	for run := range flow.Runs() {
		for i := range run.Count {
			copy(want[run.Dst+i*run.DstStride:][:run.Length], source[run.Src+i*run.SrcStride:])
		}
	}
	all, err := batches([]reshard.Flow{flow}, from, to)
	if err != nil {
		t.Fatal(err)
	}
	var moved uint64
	for i := range all {
		if all[i].src.Bytes() != all[i].dst.Bytes() {
			t.Fatalf("%d bytes become %d", all[i].src.Bytes(), all[i].dst.Bytes())
		}
		moved += all[i].dst.Bytes()
		copyLists(all[i], fromRegions, toRegions)
	}
	if moved != uint64(flow.Bytes()) {
		t.Fatalf("%d bytes move, the flow has %d", moved, flow.Bytes())
	}
	checkOneSide(t, flow, from, handoff.Source, all)
	checkOneSide(t, flow, to, handoff.Destination, all)
	if got := linear(to, toRegions); !bytes.Equal(got, want) {
		t.Fatalf("got %x, want %x", got, want)
	}
}

// copyLists is the plainest fabric.
func copyLists(l batch, from, to map[uint64][]byte) {
	src, dst := l.src.Walk(), l.dst.Walk()
	for src.Left() > 0 {
		s := src.Next(1)
		d := dst.Next(1)
		to[l.dst[d.Part].Region][d.Offset] = from[l.src[s.Part].Region][s.Offset]
	}
}

// A flow that is too much for one request becomes several.
func TestManyRunsBecomeSeveralLots(t *testing.T) {
	b := builder{src: newMap(handoff.Memory{{Length: 1 << 30}}), dst: newMap(handoff.Memory{{Length: 1 << 30}}), places: make(map[[2]int]int)}
	total := uint64(0)
	for i := range int64(maxBatchRuns + 10) {
		if err := b.add(reshard.Run{Src: i * 7, Dst: i * 9, Length: 3, Count: 1}); err != nil {
			t.Fatal(err)
		}
		total += 3
	}
	if err := b.add(reshard.Run{Src: 1 << 25, Dst: 1 << 26, Length: 1, Count: maxBatchPieces + 5, SrcStride: 2, DstStride: 3}); err != nil {
		t.Fatal(err)
	}
	total += maxBatchPieces + 5
	b.flush()
	var bytes uint64
	for i := range b.batches {
		bytes += b.batches[i].dst.Bytes()
		if p := b.batches[i].dst.Pieces(); p > maxBatchPieces {
			t.Errorf("batch %d has %d pieces", i, p)
		}
	}
	if len(b.batches) < 3 || bytes != total {
		t.Errorf("%d batches, %d bytes of %d", len(b.batches), bytes, total)
	}
	if err := b.add(reshard.Run{Src: 1<<30 - 1, Length: 2, Count: 1}); !errors.Is(err, mem.ErrBounds) {
		t.Errorf("beyond memory: %v", err)
	}
}

// checkOneSide demands that what would be granted of one side is what moves there.
func checkOneSide(t *rapid.T, flow reshard.Flow, memory handoff.Memory, as handoff.Role, all []batch) {
	granted, err := oneSide(flow, memory, as)
	if err != nil {
		t.Fatal(err)
	}
	moves := make(map[[2]uint64]bool)
	for i := range all {
		if as == handoff.Source {
			touch(moves, all[i].src)
		} else {
			touch(moves, all[i].dst)
		}
	}
	opened := make(map[[2]uint64]bool)
	if touch(opened, granted); !maps.Equal(moves, opened) {
		t.Fatalf("as %v %d bytes move, %d are granted", as, len(moves), len(opened))
	}
}

// touch notes which bytes of which regions a list covers.
func touch(all map[[2]uint64]bool, list fabric.List) {
	for _, part := range list {
		for _, run := range part.Spans.Runs() {
			for i := range run.Count {
				for b := range run.Length {
					all[[2]uint64{part.Region, run.Offset + i*run.Stride + b}] = true
				}
			}
		}
	}
}

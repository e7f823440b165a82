package transceiver

import (
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
)

// What is granted is exactly what moves, on either side, whatever the other side
// looks like.
func TestGrantsAreWhatMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := kv.Uniform(rapid.IntRange(1, 3).Draw(t, "layers"), kv.Layer{KVHeads: rapid.IntRange(1, 6).Draw(t, "heads"), HeadDim: 2}, kv.Int8)
		if rapid.Bool().Draw(t, "windows") {
			g.Layers[0].WindowTokens = 5
		}
		terms := &handoff.Terms{}
		terms.ContextTokens = rapid.IntRange(1, 16).Draw(t, "context")
		terms.Tokens = kv.TokenRange{Start: rapid.IntRange(0, terms.ContextTokens).Draw(t, "start"), End: terms.ContextTokens}
		terms.Transfer[0] = rapid.Byte().Draw(t, "turn")
		for name, party := range map[string]*handoff.Party{"src": &terms.Src, "dst": &terms.Dst} {
			party.Engine.Side = drawSide(t, name, g)
			party.Engine.Side.Parallelism.CP = rapid.IntRange(1, 2).Draw(t, name+" cp")
			party.Engine.Side.InterleaveTokens = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, name+" turn")
			party.Holding.Tables = [][]uint32{drawBlocks(t, name)}
			if rapid.IntRange(0, 2).Draw(t, name+" has places") == 0 {
				party.Engine.Side = inPlaces(t, name, party.Engine.Side)
				for i := range party.Holding.Tables[0] {
					party.Holding.Tables[0][i] *= 3
				}
			}
		}
		p := planner{shapes: reshard.NewShapes(4)}
		plan, err := p.of(terms)
		if err != nil {
			t.Fatal(err)
		}
		for _, as := range []handoff.Role{handoff.Source, handoff.Destination} {
			lies, err := p.planGrants(terms, as)
			if err != nil {
				t.Fatal(err)
			}
			if len(lies.Flows()) != len(plan.Flows()) {
				t.Fatalf("%d flows, %d lie as %v", len(plan.Flows()), len(lies.Flows()), as)
			}
			for _, flow := range plan.Flows() {
				same, err := flowOf(lies, handoff.Flow{Src: flow.Src, Dst: flow.Dst})
				if err != nil {
					t.Fatal(err)
				}
				if moves, granted := bytesAt(flow, as), bytesAt(same, as); !equal(moves, granted) {
					t.Fatalf("%d → %d as %v: %d bytes move, %d are granted", flow.Src, flow.Dst, as, len(moves), len(granted))
				}
			}
		}
	})
}

// inPlaces is a side whose blocks take up three places each.
func inPlaces(t *rapid.T, name string, s reshard.Side) reshard.Side {
	layout, err := kv.ParseLayout("BLHNC")
	if err != nil {
		t.Fatal(err)
	}
	s.Layout, s.Blocks = layout, 3*16
	for i, g := range s.Geometry.Groups() {
		bytes := int64(len(g.Indices) * 2 * g.KVHeads * g.HeadDim * s.BlockTokens) // of all ranks, so that each has room
		s.Offsets = append(s.Offsets, s.BlockStride+int64(i*rapid.IntRange(0, 9).Draw(t, name+" gap")))
		s.BlockStride = s.Offsets[i] + bytes
	}
	s.BlockStride = (s.BlockStride + 2) / 3
	return s
}

// bytesAt is which bytes of one side's rank a flow touches.
func bytesAt(f reshard.Flow, as handoff.Role) map[int64]bool {
	all := make(map[int64]bool)
	for run := range f.Runs() {
		for i := range run.Count {
			at := run.Src + i*run.SrcStride
			if as == handoff.Destination {
				at = run.Dst + i*run.DstStride
			}
			for b := range run.Length {
				all[at+b] = true
			}
		}
	}
	return all
}

func equal(a, b map[int64]bool) bool {
	for at := range a {
		if !b[at] {
			return false
		}
	}
	return len(a) == len(b)
}

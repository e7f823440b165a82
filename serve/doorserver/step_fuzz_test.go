package doorserver

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// Whatever comes as a Step is refused, or has columns that fit one another.
func FuzzStep(f *testing.F) {
	for _, m := range []*doorpb.Step{
		{},
		{Number: 1, Begun: []*doorpb.Begun{{Sequence: 1, Id: "r", PromptTokens: 5, Tail: []uint32{1, 2}}}},
		{Sequences: []uint64{1, 2}, Computed: []uint32{1, 1}, Counts: []uint32{1, 2}, Tokens: []uint32{3, 4, 5}, Entropies: []float32{-1, 0, 1}, BlockCounts: []uint32{0, 1}, Blocks: []uint32{9}},
		{Sequences: []uint64{1}, Counts: []uint32{2}, Places: []uint32{7}, Entropies: []float32{1, 2}},
		{Forked: []uint64{1}, ForkNats: []float32{1}, Copied: []*doorpb.Copied{{Sequence: 1, Blocks: []uint32{1}, Whole: true}}},
	} {
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, false)
		f.Add(body, true)
	}
	f.Fuzz(func(t *testing.T, body []byte, measures bool) {
		frame := door.Frame{Type: doorpb.FrameType_FRAME_TYPE_STEP, Body: body}
		m := &doorpb.Step{}
		if frame.UnmarshalRequest(m) != nil || checkStep(m, measures) != nil {
			return
		}
		n, found, blocks := len(m.GetSequences()), 0, 0
		for _, column := range [][]uint32{m.GetComputed(), m.GetCounts(), m.GetPlaces(), m.GetBlockCounts()} {
			if len(column) != 0 && len(column) != n {
				t.Fatalf("a column of %d for %d sequences", len(column), n)
			}
		}
		for i := range m.GetCounts() {
			found += int(m.GetCounts()[i])
		}
		for i := range m.GetBlockCounts() {
			blocks += int(m.GetBlockCounts()[i])
		}
		of := len(m.GetTokens())
		if measures {
			of = len(m.GetEntropies())
		}
		if found != of || blocks != len(m.GetBlocks()) || n > door.MaxStepSequences || measures && len(m.GetTokens()) > 0 {
			t.Fatalf("%v was taken", m)
		}
		for _, nats := range append(m.GetEntropies(), m.GetForkNats()...) {
			if nats < 0 || math.IsInf(float64(nats), 0) {
				t.Fatalf("%v is an entropy", nats)
			}
		}
	})
}

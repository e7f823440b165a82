package phase

import "testing"

func BenchmarkMapStep(b *testing.B) {
	const sequences = 256
	m := NewMap(model(b, single))
	for s := range Sequence(sequences) {
		_ = m.Begin(0, s, Prompt{})
		_, _ = m.Step(0, s, []uint32{thinkID}, nil)
	}
	token, events := []uint32{5}, make([]Event, 0, 4)
	b.ReportAllocs()
	for i := range b.N {
		events, _ = m.Step(1, Sequence(i%sequences), token, events[:0])
	}
}

func BenchmarkMachineStep(b *testing.B) {
	m := model(b, single).Begin(Prompt{})
	tokens, events := []uint32{5, 6, 7, 8, 5, 6, 7, 8}, make([]Event, 0, 4)
	events = m.Step([]uint32{thinkID}, events)
	b.ReportAllocs()
	for range b.N / len(tokens) {
		events = m.Step(tokens, events[:0])
	}
}

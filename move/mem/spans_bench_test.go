package mem

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkParseSpans is what a peer's list of blocks in any order costs before a byte
// of it moves.
func BenchmarkParseSpans(b *testing.B) {
	const blocks = 1 << 14
	var s Spans
	for _, at := range rand.New(rand.NewPCG(1, 1)).Perm(blocks) {
		_ = s.Add(uint64(at)<<14, 1<<14)
	}
	wire := s.AppendTo(nil)
	for b.Loop() {
		if _, _, err := ParseSpans(wire, blocks); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}

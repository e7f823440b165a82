package cuda

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkTables is what the CPU does for every block of a list while the device
// copies.
func BenchmarkTables(b *testing.B) {
	var moves Moves
	const blocks = 1 << 20
	for i, j := range rand.New(rand.NewPCG(1, 1)).Perm(blocks) {
		_ = moves.Add(Pointer(i)<<12, Pointer(j)<<12, 4096)
	}
	l := launch{rows: make([]row, 0, maxRows), first: make([]uint32, 0, maxSegments)}
	for b.Loop() {
		for c := (cutter{list: moves.list}); c.fill(&l); {
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}

package host

import (
	"math/rand/v2"
	"testing"

	"meridian/move/fabric"
)

// BenchmarkPair is what the CPU does for every block of a list before a launch.
func BenchmarkPair(b *testing.B) {
	const blocks, size = 1 << 13, 4 << 10
	lists := [2]fabric.List{{{}}, {{}}}
	for i := range lists {
		for _, at := range rand.New(rand.NewPCG(uint64(i), 1)).Perm(blocks) {
			_ = lists[i][0].Spans.Add(uint64(at)*size, size)
		}
	}
	j := &gpuJob{quantum: mostQuantum, sources: []deviceView{{seen: true}}, places: []deviceView{{seen: true}}}
	var s scratch
	for b.Loop() {
		j.from, j.to = lists[0].Walk(), lists[1].Walk()
		for {
			from, to, n := j.next()
			if n == 0 {
				break
			}
			for to.Left() > 0 {
				if err := s.pair(j, &from, &to); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
}

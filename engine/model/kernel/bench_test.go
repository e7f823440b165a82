package kernel

import (
	"fmt"
	"testing"
)

// BenchmarkDots: a projection of "small", for one vector and for many; as many
// weights as it has in all, which no near cache holds; and the scores of one block
// of keys for 32 queries.
func BenchmarkDots(b *testing.B) {
	for _, c := range []struct{ rows, vectors, n int }{{1088, 1, 256}, {1088, 8, 256}, {1088, 256, 256}, {40000, 1, 256}, {40000, 8, 256}, {16, 32, 32}} {
		for _, f := range available() {
			b.Run(fmt.Sprintf("%dx%dx%d/%s", c.rows, c.vectors, c.n, f.name), func(b *testing.B) {
				w := Rows{make([]float32, c.rows*c.n), c.n}
				x := Rows{make([]float32, c.vectors*c.n), c.n}
				out := Rows{make([]float32, c.vectors*c.rows), c.rows}
				for b.Loop() {
					f.dots(out, w, c.rows, x, c.vectors, c.n)
				}
				b.ReportMetric(float64(b.N)*float64(c.rows*c.vectors*c.n)/b.Elapsed().Seconds()/1e9, "Gmac/s")
			})
		}
	}
}

// BenchmarkMix: the values of one block for 32 queries.
func BenchmarkMix(b *testing.B) {
	const rows, vectors, n = 16, 32, 32
	for _, f := range available() {
		b.Run(f.name, func(b *testing.B) {
			out, v := Rows{make([]float32, vectors*n), n}, Rows{make([]float32, rows*n), n}
			p := Rows{make([]float32, vectors*rows), rows}
			for b.Loop() {
				f.mix(out, p, vectors, v, rows, n)
			}
			b.ReportMetric(float64(b.N)*rows*vectors*n/b.Elapsed().Seconds()/1e9, "Gmac/s")
		})
	}
}

func BenchmarkSoftmax(b *testing.B) {
	for _, f := range available() {
		b.Run(f.name, func(b *testing.B) {
			x := make([]float32, 1024)
			for b.Loop() {
				f.expSum(x, f.max(x))
			}
			b.ReportMetric(float64(b.N)*float64(len(x))/b.Elapsed().Seconds()/1e9, "Gexp/s")
		})
	}
}

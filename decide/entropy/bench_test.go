package entropy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// BenchmarkEntropy: a row of Qwen3's vocabulary in every form, from the near
// caches (one row) and from beyond (64 of them in turn).
func BenchmarkEntropy(b *testing.B) {
	const vocabulary = 151_936
	random := rand.New(rand.NewPCG(1, 2))
	wide, half, brain := make([]float32, vocabulary), make([]F16, vocabulary), make([]BF16, vocabulary)
	for i := range wide {
		wide[i] = float32(random.NormFloat64() * 3)
		half[i], brain[i] = narrow[F16](wide[i]), bf16(wide[i])
	}
	for _, f := range available() {
		benchmarkRow(b, f, "bf16", brain)
		benchmarkRow(b, f, "fp16", half)
		benchmarkRow(b, f, "fp32", wide)
	}
}

func benchmarkRow[T Logit](b *testing.B, f implementation, name string, row []T) {
	for _, count := range []int{1, 64} {
		b.Run(fmt.Sprintf("%s/%v/%d", name, f, count), func(b *testing.B) {
			rows := make([][]T, count)
			for i := range rows {
				rows[i] = slices.Clone(row)
			}
			for i := 0; b.Loop(); i++ {
				if _, err := entropyBy(f, rows[i%count]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

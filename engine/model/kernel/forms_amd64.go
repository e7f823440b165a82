package kernel

import (
	"math"

	"golang.org/x/sys/cpu"
)

// available lists the forms that this machine can run, fastest first.
func available() []forms {
	avx2 := forms{"AVX2", dotsBy(dotsAVX2, dotsAVX2), mixBy(mix4AVX2), maxByAVX2, expSumByAVX2, gateByAVX2}
	avx512 := avx2
	avx512.name, avx512.dots, avx512.mix = "AVX-512", dotsBy(dotsAVX512, dots4AVX512), mixBy(mix4AVX512)
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX2:
		return []forms{avx512, avx2, portable}
	case cpu.X86.HasAVX2:
		return []forms{avx2, portable}
	}
	return []forms{portable}
}

//go:noescape
func dotsAVX2(out *float32, outStride int, w *float32, wStride, rows int, x *float32, xStride, vectors, n int)

//go:noescape
func dotsAVX512(out *float32, outStride int, w *float32, wStride, rows int, x *float32, xStride, vectors, n int)

//go:noescape
func dots4AVX512(out *float32, outStride int, w *float32, wStride, rows int, x *float32, xStride, vectors, n int)

//go:noescape
func dotAVX2(a, b *float32, n int) float32

//go:noescape
func mixAVX2(out, p *float32, v *float32, vStride, rows, n int)

//go:noescape
func mix4AVX2(out *float32, outStride int, p *float32, pStride int, v *float32, vStride, rows, n int)

//go:noescape
func mix4AVX512(out *float32, outStride int, p *float32, pStride int, v *float32, vStride, rows, n int)

//go:noescape
func maxAVX2(x *float32, n int) float32

//go:noescape
func expSumAVX2(x *float32, n int, table *[15][8]float32, shift float32) float32

//go:noescape
func gateAVX2(gate, up *float32, n int, table *[15][8]float32)

const elementBytes = 4

// rowsAtOnce of weights are used by all vectors before the next come: they stay
// in the nearest cache.
const rowsAtOnce = 16

// dotsBy makes dots of a form for any number of vectors and one for fours of
// them.
func dotsBy(each, fours func(out *float32, outStride int, w *float32, wStride, rows int, x *float32, xStride, vectors, n int)) func(out, w Rows, rows int, x Rows, vectors, n int) {
	return func(out, w Rows, rows int, x Rows, vectors, n int) {
		whole, quads := rows&^3, vectors&^3
		outStride, wStride, xStride := out.Stride*elementBytes, w.Stride*elementBytes, x.Stride*elementBytes
		for first := 0; first < whole; first += rowsAtOnce {
			count := min(rowsAtOnce, whole-first)
			from := &w.Data[first*w.Stride]
			if quads > 0 {
				fours(&out.Data[first], outStride, from, wStride, count, &x.Data[0], xStride, quads, n)
			}
			if vectors > quads {
				each(&out.Data[quads*out.Stride+first], outStride, from, wStride, count, &x.Data[quads*x.Stride], xStride, vectors-quads, n)
			}
		}
		for r := whole; r < rows; r++ {
			for v := range vectors {
				out.Data[v*out.Stride+r] = dotAVX2(&w.Data[r*w.Stride], &x.Data[v*x.Stride], n)
			}
		}
	}
}

// mixBy makes mix of a form for four vectors.
func mixBy(fours func(out *float32, outStride int, p *float32, pStride int, v *float32, vStride, rows, n int)) func(out, p Rows, vectors int, v Rows, rows, n int) {
	return func(out, p Rows, vectors int, v Rows, rows, n int) {
		i := 0
		for ; i+4 <= vectors; i += 4 {
			fours(&out.Data[i*out.Stride], out.Stride*elementBytes, &p.Data[i*p.Stride], p.Stride*elementBytes,
				&v.Data[0], v.Stride*elementBytes, rows, n)
		}
		for ; i < vectors; i++ {
			mixAVX2(&out.Data[i*out.Stride], &p.Data[i*p.Stride], &v.Data[0], v.Stride*elementBytes, rows, n)
		}
	}
}

func maxByAVX2(x []float32) float32 { return maxAVX2(&x[0], len(x)) }

func expSumByAVX2(x []float32, shift float32) float32 {
	return expSumAVX2(&x[0], len(x), &expTable, shift)
}

func gateByAVX2(gate, up []float32) {
	if len(gate) > 0 {
		gateAVX2(&gate[0], &up[0], len(gate), &expTable)
	}
}

// expTable is the constants of exp, each as often as a register has room for it.
var expTable = func() (table [15][8]float32) {
	constants := append([]float32{expLeast, expMost, log2e, rounder, ln2High, ln2Low}, expPolynomial[:]...)
	for i, c := range append(constants, math.Float32frombits(127)) {
		for l := range table[i] {
			table[i][l] = c
		}
	}
	return table
}()

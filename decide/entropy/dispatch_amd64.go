package entropy

import (
	"math"

	"golang.org/x/sys/cpu"
)

// available lists the forms that this machine can run, fastest first. Every
// processor with AVX2 converts half precision, too (F16C).
func available() []implementation {
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX2:
		return []implementation{avx512, avx2, portable}
	case cpu.X86.HasAVX2:
		return []implementation{avx2, portable}
	}
	return []implementation{portable}
}

//go:noescape
func sumAVX2(block *float32, groups int, most float32, constants *termConstants, lanes *laneSums)

//go:noescape
func sumAVX512(block *float32, groups int, most float32, constants *termConstants, lanes *laneSums)

//go:noescape
func loadF32AVX2(block, from *float32, n int) (most float32, unordered bool)

//go:noescape
func loadF32AVX512(block, from *float32, n int) (most float32, unordered bool)

//go:noescape
func loadBF16AVX2(block *float32, from *BF16, n int) (most float32, unordered bool)

//go:noescape
func loadBF16AVX512(block *float32, from *BF16, n int) (most float32, unordered bool)

//go:noescape
func loadF16AVX2(block *float32, from *F16, n int) (most float32, unordered bool)

//go:noescape
func loadF16AVX512(block *float32, from *F16, n int) (most float32, unordered bool)

// Calls through a variable would let the block escape to the heap; a switch does
// not.

func (f implementation) sum(block []float32, most float32, lanes *laneSums) {
	switch f {
	case avx512:
		sumAVX512(&block[0], len(block)/groupLogits, most, &constants, lanes)
	case avx2:
		sumAVX2(&block[0], len(block)/groupLogits, most, &constants, lanes)
	default:
		portableSum(block, most, lanes)
	}
}

func (f implementation) loadF32(block, from []float32) (most float32, unordered bool) {
	switch f {
	case avx512:
		return loadF32AVX512(&block[0], &from[0], len(from))
	case avx2:
		return loadF32AVX2(&block[0], &from[0], len(from))
	}
	return portableLoad(block, from)
}

func (f implementation) loadBF16(block []float32, from []BF16) (most float32, unordered bool) {
	switch f {
	case avx512:
		return loadBF16AVX512(&block[0], &from[0], len(from))
	case avx2:
		return loadBF16AVX2(&block[0], &from[0], len(from))
	}
	return portableLoad(block, from)
}

func (f implementation) loadF16(block []float32, from []F16) (most float32, unordered bool) {
	switch f {
	case avx512:
		return loadF16AVX512(&block[0], &from[0], len(from))
	case avx2:
		return loadF16AVX2(&block[0], &from[0], len(from))
	}
	return portableLoad(block, from)
}

// termConstants are those of term, each as often as a register has room for it.
type termConstants [8][16]uint32

var constants = func() (c termConstants) {
	for i, v := range []float32{termScale, termLeast, termRounder, termCubic, termSquare, termLinear, 1} {
		for l := range c[i] {
			c[i][l] = math.Float32bits(v)
		}
	}
	for l := range c[7] {
		c[7][l] = termTable[l%8]
	}
	return c
}()

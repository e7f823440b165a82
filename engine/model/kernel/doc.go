// Package kernel is arithmetic whose bits do not depend on the machine: the few
// loops that a transformer spends its time in, each with one order of operations
// that is kept by portable Go and by every instruction set alike.
//
// A dot product has 16 lanes. Element i goes to lane i mod 16, each lane adds up
// its products from the first to the last, and the lanes meet in a fixed tree:
//
//	a:    a0  a1  …  a15 │ a16 a17 … a31 │ …
//	b:    b0  b1  …  b15 │ b16 b17 … b31 │ …
//	       ×   ×       ×
//	lane:  0   1   …  15      lane l = ((a[l]·b[l]) + a[l+16]·b[l+16]) + …
//	       └─ l + (l+8) ─┘    16 → 8 → 4 → 2 → 1
//
// That is one register of AVX-512, two of AVX2, and an array in Go. A product is
// rounded before it is added: fused multiplication would be faster on some
// machines and absent on others. Blocking over rows and vectors changes which
// dot products are computed side by side, never the order within one.
//
// # What pays
//
// Four rows times four vectors at a time, a register for each sum, is what makes
// prompts fast: every loaded number is used four times. AVX-512 is worth its form in
// Dots and Mix; e^x and the maximum are a few hundredths of a step and have AVX2 alone.
// One vector, as in decoding, is bound by the memory that weights come from:
// there wider registers gain little, and prefetching the next rows gained nothing. In
// portable Go, sums in local variables instead of an array are what helps.
// BenchmarkDots, BenchmarkMix and BenchmarkSoftmax compare the forms.
//
// Vectors are whole lanes: their length is a multiple of [Lanes], and callers
// pad with zeros, which change no sum. Lengths and strides count elements. No
// function allocates, and callers vouch for the sizes: a slice that is too short
// for what its strides reach panics.
package kernel

// Lanes is how many running sums a dot product has.
const Lanes = 16

// Padded returns n rounded up to whole lanes.
func Padded(n int) int { return (n + Lanes - 1) &^ (Lanes - 1) }

// Rows is a matrix in memory: row i begins at element i·Stride of Data.
type Rows struct {
	Data   []float32
	Stride int
}

// Row returns the first n elements of row i.
func (r Rows) Row(i, n int) []float32 { return r.Data[i*r.Stride:][:n:n] }

// From returns the rows from i on.
func (r Rows) From(i int) Rows { return Rows{r.Data[i*r.Stride:], r.Stride} }

// holds reports whether count rows of n elements lie within r.
func (r Rows) holds(count, n int) bool {
	return count == 0 || (r.Stride >= 0 && (count-1)*r.Stride+n <= len(r.Data))
}

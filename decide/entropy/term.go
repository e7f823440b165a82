package entropy

import "math"

const (
	// Lanes is how many sums go side by side.
	Lanes = 16
	// groupLogits are four times the lanes: they are added up in fp32 before they
	// go to the sums in fp64.
	groupLogits = 4 * Lanes
)

// wholeGroups rounds up.
func wholeGroups(n int) int { return (n + groupLogits - 1) &^ (groupLogits - 1) }

// laneSums are what the terms of a block come to, lane by lane.
type laneSums struct{ sum, weight [Lanes]float64 }

// term returns e^(x-most), and that times the exponent in eighths of an octave,
// for x up to most.
//
// z is the exponent in eighths of an octave, n the nearest whole number, f the
// rest: e^(x-most) = 2^(n/8) · 2^(f/8). Adding and subtracting a large constant
// rounds, in every instruction set the same. The low bits of the sum are n: three of
// them choose of the table, the others go to the exponent. 2^(f/8) is 1 and a
// polynomial without a constant, fitted to the least relative error, 2.7e-8.
func term(x, most float32) (weight, weighted float32) {
	z := float32((x - most) * termScale)
	if z < termLeast {
		z = termLeast
	}
	shifted := z + termRounder
	f := z - (shifted - termRounder)
	p := float32(termCubic*f) + termSquare
	p = float32(p*f) + termLinear
	p = float32(p*f) + 1
	n := math.Float32bits(shifted)
	weight = math.Float32frombits(termTable[n%8]+n<<20) * p
	return weight, z * weight
}

const (
	termScale   = 11.541560173034668 // 8 / ln 2
	termLeast   = -1000              // 2^-125: what is below adds nothing to a sum of 1 or more
	termRounder = 3 << 22
	termCubic   = 0.00010839106107596308
	termSquare  = 0.0037540255580097437
	termLinear  = 0.08664340525865555
)

// termTable is 2^(j/8), less what j, shifted to the exponent with the rest of n,
// adds to it.
var termTable = func() (table [8]uint32) {
	for j := range table {
		table[j] = math.Float32bits(float32(math.Exp2(float64(j)/8))) - uint32(j)<<20
	}
	return table
}()

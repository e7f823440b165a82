package kernel

import "math"

// exp is e^x, within a few units in the last place. Below expLeast it is 0, and
// above expMost it stays: softmax asks for nothing above 0, and a sigmoid is flat
// long before.
//
// x is n·ln 2 + r with |r| ≤ ½ ln 2. Adding and subtracting a large constant
// rounds to n, in every instruction set the same. ln 2 is split so that n times
// its first part is exact. Then a polynomial in r (the coefficients are those of
// the Cephes library's expf), and n goes to the exponent.
func exp(x float32) float32 {
	if x < expLeast {
		return 0
	}
	x = min(x, expMost)
	n := float32(x*log2e) + rounder - rounder
	r := x - float32(n*ln2High)
	r -= float32(n * ln2Low)
	p := float32(expPolynomial[0])
	for _, c := range expPolynomial[1:] {
		p = float32(p*r) + c
	}
	return p * math.Float32frombits(uint32(int32(n)+127)<<23)
}

const (
	expLeast = -87
	expMost  = 88
	log2e    = 1.44269504
	rounder  = 3 << 22
	ln2High  = 0.693359375
	ln2Low   = -2.12194440e-4
)

var expPolynomial = [...]float32{
	1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1,
}

package kernel

import "math"

// The functions that angles of rotary embeddings are made of, in float64 and
// only from operations that IEEE 754 rounds exactly: the standard library has
// assembly for some machines, and lets the compiler fuse on others. They are
// meant for tables, not for loops.

// Pow is x^y for x > 0 and a result that is a normal number.
func Pow(x, y float64) float64 { return exp64(y * log64(x)) }

func log64(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction, exponent = fraction*2, exponent-1
	}
	// ln f = 2 artanh s, s = (f-1)/(f+1), |s| < 0.18
	s := (fraction - 1) / (fraction + 1)
	square := s * s
	sum := 0.0
	for k := 25; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(2*s*sum) + float64(float64(exponent)*math.Ln2)
}

func exp64(x float64) float64 {
	n := math.RoundToEven(x / math.Ln2)
	r := x - float64(n*math.Ln2)
	sum := 1.0
	for k := 18; k >= 1; k-- {
		sum = 1 + float64(float64(r/float64(k))*sum)
	}
	return math.Ldexp(sum, int(n))
}

// SinCos is the sine and cosine of x, for |x| up to about a million.
func SinCos(x float64) (sin, cos float64) {
	// π/2 in parts, of which the first two have zeros at their ends: their
	// products with n are exact.
	const (
		high   = 1.5707963109016418
		middle = 1.5893254712295857e-08
		low    = 6.123233995736766e-17
	)
	n := math.RoundToEven(x / (math.Pi / 2))
	r := x - float64(n*high)
	r -= float64(n * middle)
	r -= float64(n * low)
	square := r * r
	s, c := 1.0, 1.0
	for k := 18; k >= 2; k -= 2 {
		c = 1 - float64(float64(square/float64(k*(k-1)))*c)
		s = 1 - float64(float64(square/float64(k*(k+1)))*s)
	}
	s *= r
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	}
	return -c, s
}

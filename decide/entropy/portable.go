package entropy

import "math"

// The portable forms: what every other form must equal, bit for bit. The
// conversions float32(a * b) are not idle: they forbid the compiler to fuse a
// product with the sum it goes into.

func portableSum(block []float32, most float32, lanes *laneSums) {
	for ; len(block) > 0; block = block[groupLogits:] {
		group := (*[groupLogits]float32)(block)
		for l := range Lanes {
			e0, w0 := term(group[l], most)
			e1, w1 := term(group[l+Lanes], most)
			e2, w2 := term(group[l+2*Lanes], most)
			e3, w3 := term(group[l+3*Lanes], most)
			lanes.sum[l] += float64((e0 + e1) + (e2 + e3))
			lanes.weight[l] += float64((w0 + w1) + (w2 + w3))
		}
	}
}

func portableLoad[T Logit](block []float32, from []T) (most float32, unordered bool) {
	most = negativeInfinity
	for i, logit := range from {
		x := widen(logit)
		block[i] = x
		if x > most {
			most = x
		}
		unordered = unordered || x != x
	}
	return most, unordered
}

// widen is exact.
func widen[T Logit](logit T) float32 {
	switch x := any(logit).(type) {
	case float32:
		return x
	case BF16:
		return math.Float32frombits(uint32(x) << 16)
	case F16:
		return x.float32()
	}
	panic("probe: not a logit")
}

func (x F16) float32() float32 {
	sign, magnitude := uint32(x&0x8000)<<16, uint32(x&0x7fff)
	switch {
	case magnitude >= 0x7c00: // infinite, or NaN
		return math.Float32frombits(sign | 0x7f800000 | (magnitude&0x3ff)<<13)
	case magnitude < 0x400: // below the normal ones
		const unit = 1.0 / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(float32(magnitude)*unit))
	}
	return math.Float32frombits(sign | (magnitude<<13 + (127-15)<<23))
}

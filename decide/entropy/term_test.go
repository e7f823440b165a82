package entropy

import (
	"math"
	"testing"
)

// TestTerm: 2^(z/8) within 3e-7 of its exponent z, which is rounded once from the
// exact one; and nothing but normal numbers, down to where terms end.
func TestTerm(t *testing.T) {
	worst, slip := 0.0, 0.0
	for y := float32(0); y > -90; y -= 0.000317 {
		weight, weighted := term(3+y, 3)
		z := max(float64(3+y-3)*octaveEighths, termLeast)
		rounded := float64(max(float32(3+y-3)*termScale, termLeast))
		worst = max(worst, math.Abs(float64(weight)/math.Exp2(rounded/8)-1))
		slip = max(slip, math.Abs(rounded-z)/max(1e-30, math.Abs(z)))
		if weighted != float32(rounded)*weight || weight < 0x1p-126 || weight > 1.0000002 {
			t.Fatalf("e^%v: %v, %v", y, weight, weighted)
		}
	}
	if worst > 3e-7 || slip > 2e-7 {
		t.Errorf("terms are off by %.1e, exponents by %.1e", worst, slip)
	}
	if weight, weighted := term(negativeInfinity, 3e38); weight != 0x1p-125 || weighted != termLeast*0x1p-125 {
		t.Errorf("a mask weighs %v, %v", weight, weighted)
	}
}

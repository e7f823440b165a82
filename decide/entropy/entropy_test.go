package entropy

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tolerance is what Entropy promises, in nats.
const tolerance = 1e-5

// reference is the entropy in float64, term by term and with compensated sums,
// as the definition has it: no shift but the maximum, no identity.
func reference[T Logit](row []T) float64 {
	most := math.Inf(-1)
	for _, x := range row {
		most = max(most, float64(widen(x)))
	}
	var total compensated
	for _, x := range row {
		total.add(math.Exp(float64(widen(x)) - most))
	}
	var h compensated
	for _, x := range row {
		if p := math.Exp(float64(widen(x))-most) / total.sum; p > 0 {
			h.add(-p * math.Log(p))
		}
	}
	return h.sum
}

// compensated is a sum as Kahan has it.
type compensated struct{ sum, lost float64 }

func (c *compensated) add(v float64) {
	v -= c.lost
	sum := c.sum + v
	c.lost = (sum - c.sum) - v
	c.sum = sum
}

func bf16(x float32) BF16 { return BF16(math.Float32bits(x) >> 16) }

// narrow gives the logit of T that is x, cut off towards zero, and the smallest
// or largest of T beyond its range.
func narrow[T Logit](x float32) (out T) {
	switch to := any(&out).(type) {
	case *float32:
		*to = x
	case *BF16:
		*to = bf16(x)
	case *F16:
		bits := math.Float32bits(x)
		sign, magnitude := F16(bits>>16&0x8000), bits&0x7fffffff
		switch scaled := math.Float32frombits(magnitude); {
		case magnitude >= 0x7f800000:
			*to = sign | 0x7c00 | F16(magnitude>>13&0x3ff)
		case scaled >= 65504:
			*to = sign | 0x7bff
		case scaled < 1.0/(1<<14):
			*to = sign | F16(scaled*(1<<24))
		default:
			*to = sign | F16(magnitude>>13-(127-15)<<10)
		}
	}
	return out
}

// adversarial rows, by name; each is n logits or a few more.
func adversarial(n int) map[string][]float32 {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	inf := float32(math.Inf(-1))
	fill := func(f func(i int) float32) []float32 {
		row := make([]float32, n)
		for i := range row {
			row[i] = f(i)
		}
		return row
	}
	return map[string][]float32{
		"normal":          fill(func(int) float32 { return float32(random.NormFloat64() * 3) }),
		"all equal":       fill(func(int) float32 { return 7.25 }),
		"all equal, huge": fill(func(int) float32 { return 3e38 }),
		"one hot":         fill(func(i int) float32 { return []float32{-200, 100}[min(1, i/(n-1))] }),
		"two hot":         fill(func(i int) float32 { return []float32{50, -300}[min(1, i/2)] }),
		"huge range":      fill(func(int) float32 { return float32((random.Float64() - 0.5) * 6e38) }),
		"masked but some": fill(func(i int) float32 { return []float32{float32(i % 97), inf}[min(1, i%7)] }),
		"masked but one":  fill(func(i int) float32 { return []float32{inf, 3}[max(0, i-n+2)] }),
		"denormals":       fill(func(int) float32 { return math.Float32frombits(uint32(random.IntN(1 << 23))) }),
		"ascending":       fill(func(i int) float32 { return float32(i) / 16 }),
		"descending":      fill(func(i int) float32 { return -float32(i) / 16 }),
		"late maximum":    fill(func(i int) float32 { return []float32{float32(random.NormFloat64()), 12}[max(0, i-n+2)] }),
		"half, and the rest": fill(func(i int) float32 {
			if i == 0 {
				return float32(math.Log(float64(n)))
			}
			return 0.1 // the same rounding everywhere
		}),
		"far negative": fill(func(int) float32 { return -1e4 - float32(random.IntN(64)) }),
		"tail of mass": fill(func(i int) float32 { return -float32(math.Log(float64(i) + 1)) }),
		"signed zeros": fill(func(i int) float32 { return math.Float32frombits(uint32(i%2) << 31) }),
	}
}

func checkForms[T Logit](t *testing.T, name string, row []T) {
	t.Helper()
	want := reference(row)
	first, err := entropyBy(portable, row)
	if err != nil {
		t.Errorf("%s of %d: %v", name, len(row), err)
		return
	}
	if math.Abs(first-want) > tolerance {
		t.Errorf("%s of %d %T: %v, the reference has %v", name, len(row), row[0], first, want)
	}
	for _, f := range available() {
		if got, err := entropyBy(f, row); err != nil || math.Float64bits(got) != math.Float64bits(first) {
			t.Errorf("%s of %d %T: %v has %v (%v), portable %v", name, len(row), row[0], f, got, err, first)
		}
	}
}

func checkRow[T Logit](t *testing.T, name string, row []float32) {
	t.Helper()
	typed := make([]T, len(row))
	for i, x := range row {
		typed[i] = narrow[T](x)
	}
	checkForms(t, name, typed)
}

// TestEntropyOfAdversarialRows: within the tolerance of float64, and the same bits
// in every form.
func TestEntropyOfAdversarialRows(t *testing.T) {
	t.Logf("fastest here: %s", Name())
	for _, n := range []int{2, 63, 64, 65, 1000, blockLogits, blockLogits + 1, 50_257, 151_936} {
		for name, row := range adversarial(n) {
			checkRow[float32](t, name, row)
			checkRow[BF16](t, name, row)
			checkRow[F16](t, name, row)
		}
	}
}

func TestEntropyOfAnyRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := rapid.IntRange(1, 3*blockLogits).Draw(t, "vocabulary")
		spread := math.Exp2(rapid.Float64Range(-20, 20).Draw(t, "spread"))
		middle := rapid.Float64Range(-1e4, 1e4).Draw(t, "middle")
		masked := rapid.Float64Range(0, 1).Draw(t, "masked")
		row := make([]F16, n)
		wide := make([]float32, n)
		for i := range row {
			x := float32(middle + random.NormFloat64()*spread)
			if i > 0 && random.Float64() < masked {
				x = negativeInfinity
			}
			wide[i], row[i] = x, narrow[F16](x)
		}
		for _, f := range available() {
			for _, c := range []struct {
				got, want float64
				err       error
			}{both(f, row), both(f, wide)} {
				if c.err != nil || math.Abs(c.got-c.want) > tolerance {
					t.Fatalf("%v: %v (%v), the reference has %v", f, c.got, c.err, c.want)
				}
			}
		}
	})
}

func both[T Logit](f implementation, row []T) (c struct {
	got, want float64
	err       error
},
) {
	c.got, c.err = entropyBy(f, row)
	c.want = reference(row)
	return c
}

// TestEntropyHasBounds: never below zero, never above ln n.
func TestEntropyHasBounds(t *testing.T) {
	for _, n := range []int{1, 2, 100, 5000} {
		for name, row := range adversarial(max(n, 2)) {
			if h, err := Entropy(row); err != nil || h < 0 || h > math.Log(float64(len(row)))+tolerance {
				t.Errorf("%s of %d: %v, %v", name, len(row), h, err)
			}
		}
	}
}

func TestBadRowsSayWhere(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		bad  float32
		want error
	}{
		"NaN": {nan, ErrNaN}, "negative NaN": {math.Float32frombits(0xffc00000), ErrNaN}, "+Inf": {inf, ErrInfinite},
	} {
		for _, n := range []int{1, 64, 100, 3 * blockLogits} {
			for _, at := range []int{0, n / 2, n - 1} {
				row := make([]float32, n)
				row[at] = c.bad
				sayWhere[float32](t, name, row, at, c.want)
				sayWhere[BF16](t, name, row, at, c.want)
				sayWhere[F16](t, name, row, at, c.want)
			}
		}
	}
	if _, err := Entropy([]float32{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := Entropy(slices.Repeat([]float32{negativeInfinity}, 5000)); !errors.Is(err, ErrMasked) {
		t.Errorf("all masked: %v", err)
	}
}

func sayWhere[T Logit](t *testing.T, name string, wide []float32, at int, want error) {
	t.Helper()
	row := make([]T, len(wide))
	for i, x := range wide {
		row[i] = narrow[T](x)
	}
	for _, f := range available() {
		_, err := entropyBy(f, row)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "token "+strconv.Itoa(at)+" of "+strconv.Itoa(len(row))) {
			t.Errorf("%v, %s at %d of %d %T: %v", f, name, at, len(row), row[0], err)
		}
	}
}

func TestEntropyAllocatesNothing(t *testing.T) {
	wide, half := make([]float32, 5000), make([]BF16, 5000)
	if n := testing.AllocsPerRun(10, func() {
		_, _ = Entropy(wide)
		_, _ = Entropy(half)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHalfPrecisionIsExact(t *testing.T) {
	for bits := range 1 << 16 {
		x := F16(bits)
		mantissa, exponent := float64(bits&0x3ff), bits>>10&31
		want := math.Ldexp(mantissa+1024, exponent-25)
		switch {
		case exponent == 0:
			want = math.Ldexp(mantissa, -24)
		case exponent == 31 && mantissa == 0:
			want = math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		}
		if bits>>15 == 1 {
			want = -want
		}
		if got := float64(widen(x)); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Fatalf("%#x is %v, want %v", bits, got, want)
		}
	}
}

func FuzzEntropy(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0x40, 0x80, 0x7f, 0xff, 0xff, 0x80, 0xff})
	f.Fuzz(func(t *testing.T, bytes []byte) {
		row := make([]BF16, len(bytes)/2)
		half := make([]F16, len(bytes)/2)
		for i := range row {
			bits := uint16(bytes[2*i]) | uint16(bytes[2*i+1])<<8
			row[i], half[i] = BF16(bits), F16(bits)
		}
		fuzzed(t, row)
		fuzzed(t, half)
		wide := make([]float32, len(bytes)/4)
		for i := range wide {
			wide[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
		}
		fuzzed(t, wide)
	})
}

func fuzzed[T Logit](t *testing.T, row []T) {
	t.Helper()
	want, wantErr := entropyBy(portable, row)
	if wantErr == nil && math.Abs(want-reference(row)) > tolerance {
		t.Fatalf("%v, the reference has %v", want, reference(row))
	}
	for _, form := range available() {
		got, err := entropyBy(form, row)
		if math.Float64bits(got) != math.Float64bits(want) || (err == nil) != (wantErr == nil) || (err != nil && err.Error() != wantErr.Error()) {
			t.Fatalf("%v: %v (%v), portable %v (%v)", form, got, err, want, wantErr)
		}
	}
}

package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// numbers are of very different sizes, so that another order of additions shows.
func numbers(t *rapid.T, n int) []float32 {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(random.NormFloat64() * math.Exp2(float64(random.IntN(12)-6)))
	}
	return x
}

func drawRows(t *rapid.T, count, n int) Rows {
	stride := n + rapid.IntRange(0, 5).Draw(t, "gap")
	return Rows{numbers(t, count*stride), stride}
}

func drawLength(t *rapid.T) int { return Lanes * rapid.IntRange(1, 20).Draw(t, "lanes") }

// sameInAllForms fails unless every form turns a copy of before into the same
// bits as the portable one does.
func sameInAllForms(t *rapid.T, before []float32, run func(f forms, x []float32) float32) {
	want := slices.Clone(before)
	returned := run(portable, want)
	for _, f := range available() {
		got := slices.Clone(before)
		if r := run(f, got); math.Float32bits(r) != math.Float32bits(returned) {
			t.Fatalf("%s returns %v, want %v", f.name, r, returned)
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%s: element %d of %d is %v, want %v", f.name, i, len(got), got[i], want[i])
			}
		}
	}
}

func TestFormsOfDots(t *testing.T) {
	t.Logf("fastest here: %s", best.name)
	rapid.Check(t, func(t *rapid.T) {
		rows, vectors, n := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 11).Draw(t, "vectors"), drawLength(t)
		w, x, out := drawRows(t, rows, n), drawRows(t, vectors, n), drawRows(t, vectors, rows)
		sameInAllForms(t, out.Data, func(f forms, data []float32) float32 {
			f.dots(Rows{data, out.Stride}, w, rows, x, vectors, n)
			return 0
		})
	})
}

func TestFormsOfMix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, vectors, n := rapid.IntRange(1, 40).Draw(t, "rows"), rapid.IntRange(1, 11).Draw(t, "vectors"), drawLength(t)
		p, v, out := drawRows(t, vectors, rows), drawRows(t, rows, n), drawRows(t, vectors, n)
		sameInAllForms(t, out.Data, func(f forms, data []float32) float32 {
			f.mix(Rows{data, out.Stride}, p, vectors, v, rows, n)
			return 0
		})
	})
}

func TestFormsOfSoftmax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := numbers(t, drawLength(t))
		for i := rapid.IntRange(1, len(x)).Draw(t, "seen"); i < len(x); i++ {
			x[i] = float32(math.Inf(-1))
		}
		sameInAllForms(t, x, func(f forms, data []float32) float32 { return f.expSum(data, f.max(data)) })
	})
}

func TestFormsOfGate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawLength(t)
		x, up := numbers(t, n), numbers(t, n)
		sameInAllForms(t, x, func(f forms, data []float32) float32 {
			f.gate(data, up)
			return 0
		})
	})
}

// TestDotsOrder spells the order of one dot product out once more.
func TestDotsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawLength(t)
		a, b := numbers(t, n), numbers(t, n)
		var lanes [Lanes]float32
		for i := range a {
			product := a[i] * b[i]
			lanes[i%Lanes] += product
		}
		eight := func(i int) float32 { return lanes[i] + lanes[i+8] }
		four := func(i int) float32 { return eight(i) + eight(i+4) }
		want := (four(0) + four(2)) + (four(1) + four(3))
		var got [1]float32
		Dots(Rows{got[:], 1}, Rows{a, n}, 1, Rows{b, n}, 1, n)
		if got[0] != want {
			t.Fatalf("%v, want %v", got[0], want)
		}
		if square := Square(a); square != portableDot(a, a) {
			t.Fatalf("square %v, want %v", square, portableDot(a, a))
		}
	})
}

// TestSquareOfBrokenLanes: what is missing of a lane counts as zero.
func TestSquareOfBrokenLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := numbers(t, rapid.IntRange(1, 100).Draw(t, "length"))
		padded := append(slices.Clone(x), make([]float32, Padded(len(x))-len(x))...)
		if got, want := Square(x), Square(padded); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestExp(t *testing.T) {
	worst := 0.0
	for x := float32(-87); x <= 88; x += 0.00137 {
		worst = max(worst, math.Abs(float64(exp(x))/math.Exp(float64(x))-1))
	}
	if worst > 2e-7 {
		t.Errorf("relative error %v", worst)
	}
	for x, want := range map[float32]float32{0: 1, -88: 0, float32(math.Inf(-1)): 0, 1000: exp(88)} {
		if got := exp(x); got != want {
			t.Errorf("e^%v is %v, want %v", x, got, want)
		}
	}
}

func TestAngles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		x := random.Float64() * math.Exp2(float64(random.IntN(20)))
		sin, cos := SinCos(x)
		if wantSin, wantCos := math.Sincos(x); math.Abs(sin-wantSin) > 1e-14 || math.Abs(cos-wantCos) > 1e-14 {
			t.Fatalf("sin, cos of %v: %v, %v, want %v, %v", x, sin, cos, wantSin, wantCos)
		}
		base, exponent := 1+random.Float64()*1e6, 2*random.Float64()-1
		if got, want := Pow(base, exponent), math.Pow(base, exponent); math.Abs(got/want-1) > 1e-13 {
			t.Fatalf("%v^%v is %v, want %v", base, exponent, got, want)
		}
	}
}

func TestShortSlicesPanic(t *testing.T) {
	row := func(n int) Rows { return Rows{make([]float32, n), n} }
	for name, call := range map[string]func(){
		"vector too short":    func() { Dots(row(1), row(32), 1, row(16), 1, 32) },
		"row missing":         func() { Dots(row(2), row(16), 2, row(16), 1, 16) },
		"no room":             func() { Dots(row(1), Rows{make([]float32, 32), 16}, 2, row(16), 1, 16) },
		"broken lanes":        func() { Dots(row(1), row(15), 1, row(15), 1, 15) },
		"negative stride":     func() { Dots(row(1), Rows{make([]float32, 16), -16}, 2, row(16), 1, 16) },
		"mix without rows":    func() { Mix(row(16), row(2), 1, row(16), 2, 16) },
		"softmax of nothing":  func() { Softmax(nil) },
		"gate of two lengths": func() { Gate(make([]float32, 16), make([]float32, 32)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

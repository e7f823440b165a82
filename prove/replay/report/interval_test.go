package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Of many experiments whose truth is known, intervals hold it in as many as they
// promise, be the seeds ever so few.
func TestIntervalsHoldTheTruth(t *testing.T) {
	const experiments, truth = 4000, 3.0
	random := rand.New(rand.NewPCG(1, 2))
	for _, seeds := range []int{2, 3, 5, 30} {
		held := 0
		for range experiments {
			values := make([]float64, seeds)
			for i := range values {
				values[i] = truth + random.NormFloat64()
			}
			if i := meanInterval(values); i.Low <= truth && truth <= i.High {
				held++
			}
		}
		share := float64(held) / experiments
		t.Logf("%d seeds: %.3f of the intervals hold the truth", seeds, share)
		if share < 0.94 || share > 0.96 {
			t.Errorf("%.3f of the intervals over %d seeds hold the truth, want about 0.95", share, seeds)
		}
	}
}

// Policies that are equal are called so, except about one in twenty, also where
// seeds scatter far and crookedly, as tail latencies do; docs/replay.md has the
// rates. Policies that differ are found.
func TestEqualPoliciesGetNoVerdict(t *testing.T) {
	const experiments = 4000
	tail := metricOf(Metrics, TailTTFVT)
	normal := func(r *rand.Rand, size float64) float64 { return 1 + size*r.NormFloat64() }
	crooked := func(r *rand.Rand, size float64) float64 { return math.Exp(size * r.NormFloat64()) }
	for _, c := range []struct {
		name        string
		seeds       int
		noise       func(r *rand.Rand, size float64) float64
		size, merit float64
		paired      bool
		least, most float64 // of experiments with a verdict
	}{
		{"even", 5, normal, 0.1, 1, true, 0.03, 0.06},
		{"crooked", 5, crooked, 0.5, 1, true, 0.01, 0.06},
		{"very crooked", 5, crooked, 1, 1, true, 0.005, 0.06},
		{"two seeds", 2, normal, 0.1, 1, true, 0.03, 0.06},
		{"other requests", 5, normal, 0.1, 1, false, 0.01, 0.06},
		{"a fifth less", 5, normal, 0.05, 0.8, true, 0.95, 1},
	} {
		random := rand.New(rand.NewPCG(3, 4))
		called := 0
		for range experiments {
			values, base := make([]float64, c.seeds), make([]float64, c.seeds)
			for i := range values {
				weather := 100 * (1 + 0.3*random.Float64())
				values[i] = c.merit * weather * c.noise(random, c.size)
				if c.paired {
					base[i] = weather * c.noise(random, c.size)
				} else {
					base[i] = 100 * (1 + 0.3*random.Float64()) * c.noise(random, c.size)
				}
			}
			between := looseGap
			if c.paired {
				between = pairedGap
			}
			if v := tail.verdict(between(values, base)); v == Win || v == Loss {
				called++
			}
		}
		share := float64(called) / experiments
		t.Logf("%s: %.3f get a verdict", c.name, share)
		if share < c.least || share > c.most {
			t.Errorf("%s: %.3f get a verdict, want %v to %v", c.name, share, c.least, c.most)
		}
	}
}

func TestIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0.001, 1000), 1, 9).Draw(t, "values")
		i := meanInterval(values)
		if i.Low > i.Mean || i.High < i.Mean {
			t.Fatalf("%+v does not hold its own mean", i)
		}
		if zero := pairedGap(values, values).absolute(); zero != (Interval{}) {
			t.Fatalf("a policy is %+v away from itself", zero)
		}
		// The same share less in every seed is that share less, with no doubt.
		less := make([]float64, len(values))
		for j, v := range values {
			less[j] = 0.75 * v
		}
		if c, told := pairedGap(less, values).relative(); told && (math.Abs(c.Low+0.25) > 1e-5 || math.Abs(c.High+0.25) > 1e-5) {
			t.Fatalf("a quarter less is %+v", c)
		}
		// Parts of the base and the difference as it stands say the same.
		base := rapid.SliceOfN(rapid.Float64Range(0.001, 1000), len(values), len(values)).Draw(t, "base")
		for name, g := range map[string]gap{"paired": pairedGap(values, base), "loose": looseGap(values, base)} {
			part, told := g.relative()
			whole := g.absolute()
			if told && (part.Low > part.Mean || part.High < part.Mean) {
				t.Fatalf("%s: %+v does not hold its own mean", name, part)
			}
			if sure := math.Abs(whole.Low) > 1e-3 && math.Abs(whole.High) > 1e-3; told && sure && part.Excludes(0) != whole.Excludes(0) {
				t.Fatalf("%s: %+v of the base, and %+v", name, part, whole)
			}
		}
	})
}

func TestIntervalsKeepToWhatCanBe(t *testing.T) {
	slo := metricOf(Metrics, Attainment)
	if i := slo.within(meanInterval([]float64{0.98, 1, 1})); i.High != 1 || i.Low >= i.Mean {
		t.Errorf("an SLO attainment of %+v", i)
	}
	tail := metricOf(Metrics, TailTTFVT)
	if i := tail.within(meanInterval([]float64{1, 1, 10})); i.Low != 0 || i.High <= 10 {
		t.Errorf("a latency of %+v", i)
	}
}

// A base that may be nothing is no measure.
func TestNoPartsOfNothing(t *testing.T) {
	for name, base := range map[string][]float64{"nothing": {0, 0, 0}, "perhaps nothing": {0, 0, 12}} {
		if i, told := pairedGap([]float64{1, 2, 3}, base).relative(); told {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// The density of Student's distribution, added up to where an interval ends.
func TestStudent(t *testing.T) {
	for _, freedom := range []int{1, 2, 4, 9, 20, 21, 30, 100, 999} {
		n, to := float64(freedom), student(freedom)
		a, _ := math.Lgamma((n + 1) / 2)
		b, _ := math.Lgamma(n / 2)
		density := func(x float64) float64 { return math.Exp(a-b-(n+1)/2*math.Log1p(x*x/n)) / math.Sqrt(n*math.Pi) }
		const steps = 20000
		sum := density(0) + density(to)
		for i := 1; i < steps; i++ {
			sum += density(to*float64(i)/steps) * float64(2+2*(i%2))
		}
		if inside := 2 * sum * to / steps / 3; math.Abs(inside-Confidence) > 2e-6 {
			t.Errorf("%d degrees of freedom: %.7f lie within %v", freedom, inside, to)
		}
	}
}

func TestRounded(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, math.Copysign(0, -1): 0, 1234567: 1234570, 0.00012345678: 0.000123457, -2.5: -2.5} {
		if got := rounded(x); got != want || math.Signbit(got) != math.Signbit(want) {
			t.Errorf("rounded(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestTexts(t *testing.T) {
	ttft := metricOf(Metrics, "ttft_p99")
	slo := metricOf(Metrics, Attainment)
	whole := func(m Metric, change Interval, relative bool) string {
		text, interval := changeText(m, change, relative)
		return strings.TrimSpace(text + " " + interval)
	}
	for got, want := range map[string]string{
		Seconds.text(0.0123): "12.3 ms",
		Seconds.text(123.4):  "123 s",
		Share.text(0.9712):   "97.1 %",
		PerSecond.text(1523): "1.52k/s",
		Bytes.text(3 << 30):  "3 GiB",
		Count.text(0):        "0",
		digits(100, 3):       "100",
		whole(ttft, Interval{Mean: -0.312, Low: -0.35, High: -0.281}, true):  "−31.2 % [−35.0, −28.1]",
		whole(slo, Interval{Mean: 0.02, Low: -0.001, High: 0.041}, false):    "+2.0 pp [−0.1, +4.1]",
		whole(ttft, Interval{Mean: -0.00001, Low: -0.0002, High: 0.3}, true): "0.0 % [0.0, +30.0]",
		whole(ttft, Interval{Mean: 1.5, Low: 1.5, High: 1.5}, true):          "+150 %",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

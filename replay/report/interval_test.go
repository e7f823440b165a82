package report

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Of many experiments whose truth is known, intervals hold it in about as many
// as they promise; with few seeds in fewer, as docs/replay.md says.
func TestIntervalsHoldTheTruth(t *testing.T) {
	const experiments, truth = 1000, 3.0
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		seeds       int
		least, most float64
	}{{5, 0.79, 0.88}, {30, 0.92, 0.97}} {
		held := 0
		d := newDraws(c.seeds, oneStream)
		for range experiments {
			values := make([]float64, c.seeds)
			for i := range values {
				values[i] = truth + random.NormFloat64()
			}
			if i := d.mean(values); i.Low <= truth && truth <= i.High {
				held++
			}
		}
		share := float64(held) / experiments
		t.Logf("%d seeds: %.3f of the intervals hold the truth", c.seeds, share)
		if share < c.least || share > c.most {
			t.Errorf("%.3f of the intervals over %d seeds hold the truth, want %v to %v", share, c.seeds, c.least, c.most)
		}
	}
}

func TestIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0.001, 1000), 1, 9).Draw(t, "values")
		d := newDraws(len(values), oneStream)
		i := d.mean(values)
		if i.Low > i.Mean || i.High < i.Mean {
			t.Fatalf("%+v does not hold its own mean", i)
		}
		if again := newDraws(len(values), oneStream).mean(values); again != i {
			t.Fatalf("%+v, and then %+v", i, again)
		}
		if zero := d.change(values, values, true); zero != (Interval{}) {
			t.Fatalf("a policy is %+v away from itself", zero)
		}
		// The same share less in every seed is that share less, with no doubt.
		less := make([]float64, len(values))
		for j, v := range values {
			less[j] = 0.75 * v
		}
		if c := d.change(less, values, true); math.Abs(c.Low+0.25) > 1e-5 || math.Abs(c.High+0.25) > 1e-5 {
			t.Fatalf("a quarter less is %+v", c)
		}
	})
}

func TestRounded(t *testing.T) {
	for x, want := range map[float64]float64{0: 0, math.Copysign(0, -1): 0, 1234567: 1234570, 0.00012345678: 0.000123457, -2.5: -2.5} {
		if got := rounded(x); got != want || math.Signbit(got) != math.Signbit(want) {
			t.Errorf("rounded(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestTexts(t *testing.T) {
	ttft, _ := metricOf(Metrics, "ttft_p99")
	slo, _ := metricOf(Metrics, Attainment)
	for got, want := range map[string]string{
		Seconds.text(0.0123): "12.3 ms",
		Seconds.text(123.4):  "123 s",
		Share.text(0.9712):   "97.1 %",
		PerSecond.text(1523): "1.52k/s",
		Bytes.text(3 << 30):  "3 GiB",
		Count.text(0):        "0",
		digits(100, 3):       "100",
		changeText(ttft, Interval{Mean: -0.312, Low: -0.35, High: -0.281}, true):  "−31.2 % [−35.0, −28.1]",
		changeText(slo, Interval{Mean: 0.02, Low: -0.001, High: 0.041}, false):    "+2.0 pp [−0.1, +4.1]",
		changeText(ttft, Interval{Mean: -0.00001, Low: -0.0002, High: 0.3}, true): "0.0 % [0.0, +30.0]",
		changeText(ttft, Interval{Mean: 1.5, Low: 1.5, High: 1.5}, true):          "+150 %",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

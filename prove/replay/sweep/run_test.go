package sweep

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"meridian/prove/replay"
	"meridian/prove/replay/report"
)

// A percentile is known to half a bucket of its histogram, on either side of a
// comparison: no smaller difference may be called one.
func TestLeastDifferenceIsNotBelowTheHistograms(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	worst := 0.0
	for range 400 {
		truth := time.Duration(float64(time.Millisecond) * math.Exp(12*random.Float64()))
		m := replay.NewMeter(replay.SLO{})
		for _, ttft := range []time.Duration{truth / 2, truth, 2 * truth} { // so that the middle one is neither least nor most
			m.Add(replay.Measured{Chunks: []replay.Chunk{{At: ttft, Tokens: 1}}, Complete: true})
		}
		told := Reported(m.Result("test")).Values[report.Percentile("ttft", 50)]
		worst = max(worst, math.Abs(told/truth.Seconds()-1))
	}
	metric := report.Metrics[slices.IndexFunc(report.Metrics, func(m report.Metric) bool { return m.Name == "ttft_p50" })]
	t.Logf("a percentile is off by up to %.4f", worst)
	if worst < 0.002 || 2*worst > metric.Least {
		t.Errorf("percentiles are off by up to %.4f, and differ from %v on", worst, metric.Least)
	}
}

package bench

import (
	"math"
	"slices"
	"time"
)

// Figure is what several rounds gave.
type Figure struct {
	Median float64 `json:"gbps"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func figure(scores []float64) Figure {
	sorted := slices.Sorted(slices.Values(scores))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Figure{Median: rounded(median), Min: rounded(sorted[0]), Max: rounded(sorted[len(sorted)-1])}
}

// rounded keeps three decimals: more would be noise.
func rounded(v float64) float64 { return math.Round(v*1000) / 1000 }

// percentile is the smallest sample that so many percent do not exceed, in
// microseconds. It sorts the samples.
func percentile(samples []time.Duration, percent int) float64 {
	slices.Sort(samples)
	at := min(len(samples)-1, len(samples)*percent/100)
	return float64(samples[at].Nanoseconds()) / 1000
}

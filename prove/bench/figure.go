package bench

import (
	"fmt"
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

// NewFigure sums up the scores of at least one round.
func NewFigure(scores []float64) Figure {
	sorted := slices.Sorted(slices.Values(scores))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Figure{Median: Rounded(median), Min: Rounded(sorted[0]), Max: Rounded(sorted[len(sorted)-1])}
}

// Rounded keeps three decimals: more would be noise. Of what is less than a tenth it
// keeps three digits, so that only nothing becomes 0: others divide by it.
func Rounded(v float64) float64 {
	scale := 1000.0
	if small := math.Abs(v); 0 < small && small < 0.1 {
		scale = math.Pow(10, 2-math.Floor(math.Log10(small)))
	}
	return math.Round(v*scale) / scale
}

// Percentile is the smallest sample that so many percent do not exceed, in
// microseconds. It sorts the samples.
func Percentile(samples []time.Duration, percent int) float64 {
	slices.Sort(samples)
	at := min(len(samples)-1, len(samples)*percent/100)
	return float64(samples[at].Nanoseconds()) / 1000
}

func (f Figure) String() string { return Score(f).In(2) }

// Score is a figure of something else than bytes a second.
type Score struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// NewScore sums up the scores of at least one round.
func NewScore(scores []float64) Score { return Score(NewFigure(scores)) }

func (s Score) String() string {
	return fmt.Sprintf("%s [%s–%s]", Digits(s.Median, 4), Digits(s.Min, 4), Digits(s.Max, 4))
}

// In is with so many decimals.
func (s Score) In(decimals int) string {
	return fmt.Sprintf("%.*f [%.*f–%.*f]", decimals, s.Median, decimals, s.Min, decimals, s.Max)
}

package report

import (
	"math"
	"strings"
)

// scale maps values onto a length of picture; its ticks are labelled.
type scale struct {
	low, high float64 // of what forward makes of values
	forward   func(float64) float64
	ticks     []tick
}

type tick struct {
	at    float64
	label string
}

// place is where x stands, between 0 and 1.
func (s scale) place(x float64) float64 {
	if s.high == s.low {
		return 0.5
	}
	return min(1, max(0, (s.forward(x)-s.low)/(s.high-s.low)))
}

func same(x float64) float64 { return x }

// linear has round ticks and both ends inside.
func linear(low, high float64, unit Unit) scale {
	if high <= low {
		high = low + 1
	}
	step := roundStep((high - low) / 4)
	s := scale{low: math.Floor(low/step+1e-9) * step, high: math.Ceil(high/step-1e-9) * step, forward: same}
	for x := s.low; x <= s.high+step/2; x += step {
		if math.Abs(x) < step/1e6 {
			x = 0
		}
		s.ticks = append(s.ticks, tick{x, axisText(unit, x)})
	}
	return s
}

// roundStep is 1, 2 or 5 times a power of ten, not below x.
func roundStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= x*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic has ticks at 1, or at 1, 2 and 5, of each power of ten.
func logarithmic(low, high float64, unit Unit) scale {
	low = max(low, 1e-9)
	high = max(high, low*1.5)
	s := scale{low: math.Log10(low), high: math.Log10(high), forward: func(x float64) float64 { return math.Log10(max(x, 1e-12)) }}
	multiples := []float64{1}
	switch decades := s.high - s.low; {
	case decades < 2:
		multiples = []float64{1, 2, 5}
	case decades < 3.5:
		multiples = []float64{1, 3}
	}
	for power := math.Floor(s.low); power <= s.high; power++ {
		for _, m := range multiples {
			if x := m * math.Pow(10, power); x >= low*(1-1e-9) && x <= high*(1+1e-9) {
				s.ticks = append(s.ticks, tick{x, axisText(unit, x)})
			}
		}
	}
	return s
}

// tail stretches a distribution's upper end, where the waiting is: half, 90 %,
// 99 % and 99.9 % are about as far apart as each other.
func tail() scale {
	s := scale{low: 0, high: 4, forward: func(p float64) float64 { return -math.Log10(1 - p) }}
	for _, p := range []struct {
		at    float64
		label string
	}{{0, "0"}, {0.5, "50 %"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {0.9999, "99.99 %"}} {
		s.ticks = append(s.ticks, tick(p))
	}
	return s
}

// axisText is a tick's label: the figure without blanks before its unit, which
// an axis has no room for.
func axisText(unit Unit, x float64) string {
	switch unit {
	case Share:
		return digits(100*x, 3) + " %"
	case PerSecond:
		return strings.TrimSuffix(unit.text(x), "/s")
	}
	return unit.text(x)
}

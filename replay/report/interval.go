package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// How intervals are made: a percentile bootstrap over seeds.
const (
	Resamples  = 4000
	Confidence = 0.95
)

// Interval is an estimate and how far it may be off.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Excludes says whether the interval lies wholly on one side of x.
func (i Interval) Excludes(x float64) bool { return i.Low > x || i.High < x }

// draws are resamples of so many seeds: each row names as many as there are,
// with repetition. They depend on the number of seeds and the stream alone.
type draws [][]int

// Streams of draws. Figures that belong together share one, which keeps the
// runs of a seed together; sides that have nothing in common have one each.
const (
	oneStream = iota
	otherStream
)

func newDraws(seeds int, stream uint64) draws {
	random := rand.New(rand.NewPCG(uint64(seeds), stream))
	rows := make(draws, Resamples)
	for i := range rows {
		rows[i] = make([]int, seeds)
		for j := range rows[i] {
			rows[i][j] = random.IntN(seeds)
		}
	}
	return rows
}

// mean is the interval of the mean over seeds.
func (d draws) mean(values []float64) Interval {
	return interval(meanOf(values, nil), len(values), func(i int) float64 { return meanOf(values, d[i]) })
}

// change is the interval of how far the mean of values is from that of base,
// relative to it or as it stands. A draw takes the same seeds of both.
func (d draws) change(values, base []float64, relative bool) Interval {
	return changeIn(values, base, relative, d, d)
}

// changeIn draws values by one set of rows and the base by another.
func changeIn(values, base []float64, relative bool, d, of draws) Interval {
	far := func(rows, baseRows []int) float64 {
		v, w := meanOf(values, rows), meanOf(base, baseRows)
		if relative {
			return (v - w) / w
		}
		return v - w
	}
	return interval(far(nil, nil), min(len(values), len(base)), func(i int) float64 { return far(d[i], of[i]) })
}

// interval is an estimate with the middle of what the draws say of it. One
// seed says nothing about others: its interval is the estimate.
func interval(estimate float64, seeds int, draw func(i int) float64) Interval {
	whole := Interval{Mean: rounded(estimate), Low: rounded(estimate), High: rounded(estimate)}
	if seeds < 2 {
		return whole
	}
	values := make([]float64, 0, Resamples)
	for i := range Resamples {
		if v := draw(i); !math.IsNaN(v) && !math.IsInf(v, 0) { // a draw whose base is nothing has no ratio
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return whole
	}
	slices.Sort(values)
	const tail = (1 - Confidence) / 2
	whole.Low, whole.High = rounded(quantile(values, tail)), rounded(quantile(values, 1-tail))
	return whole
}

// meanOf is the mean of the rows named, or of all.
func meanOf(values []float64, rows []int) float64 {
	sum := 0.0
	if rows == nil {
		for _, v := range values {
			sum += v
		}
		return sum / float64(len(values))
	}
	for _, i := range rows {
		sum += values[i]
	}
	return sum / float64(len(rows))
}

// quantile interpolates in sorted values.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	part := at - float64(below)
	return sorted[below]*(1-part) + sorted[below+1]*part
}

// rounded keeps six digits: more than any figure here means, and no noise of
// last bits in a file that is compared byte by byte.
func rounded(x float64) float64 { return roundedTo(x, 6) }

func roundedTo(x float64, digits int) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil || short == 0 {
		return 0 // an empty figure; also the end of a negative zero
	}
	return short
}

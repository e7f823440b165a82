package report

import (
	"math"
	"slices"
	"strconv"
)

// Confidence is the share of intervals that hold the truth, where seeds scatter
// as Student's t has it: evenly around it, however few they are.
const Confidence = 0.95

// Interval is an estimate and how far it may be off.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Excludes says whether the interval lies wholly on one side of x.
func (i Interval) Excludes(x float64) bool { return i.Low > x || i.High < x }

// around is an interval with as much on both sides of its estimate.
func around(estimate, reach float64) Interval {
	return Interval{Mean: rounded(estimate), Low: rounded(estimate - reach), High: rounded(estimate + reach)}
}

// meanInterval is the mean over seeds. One seed says nothing about others: its
// interval is the estimate.
func meanInterval(values []float64) Interval {
	mean := meanOf(values)
	if len(values) < 2 {
		return around(mean, 0)
	}
	return around(mean, student(len(values)-1)*math.Sqrt(covariance(values, values)))
}

// gap is what seeds say of the difference of a mean from a base: the variances
// are those of the means.
type gap struct {
	difference, base                 float64
	varDifference, varBase, together float64 // together: covariance of both
	freedom                          int     // degrees of it; 0 means that there is no interval
	varied                           bool    // some figure of either side differs from seed to seed
}

// pairedGap is that of runs with the same requests: differences are taken seed
// by seed, so that what both suffer alike cancels.
func pairedGap(values, base []float64) gap {
	differences := make([]float64, len(values))
	for i, v := range values {
		differences[i] = v - base[i]
	}
	return gap{
		difference: meanOf(differences), base: meanOf(base), varDifference: covariance(differences, differences), varBase: covariance(base, base),
		together: covariance(differences, base), freedom: len(values) - 1,
		varied: varies(values) || varies(base),
	}
}

// looseGap is that of runs that have nothing in common, with the degrees of
// freedom by Welch, rounded down.
func looseGap(values, base []float64) gap {
	a, b := covariance(values, values), covariance(base, base)
	g := gap{difference: meanOf(values) - meanOf(base), base: meanOf(base), varDifference: a + b, varBase: b, together: -b, varied: varies(values) || varies(base)}
	if n, k := len(values)-1, len(base)-1; n > 0 && k > 0 {
		g.freedom = min(n, k)
		if whole := a*a/float64(n) + b*b/float64(k); whole > 0 {
			g.freedom = max(g.freedom, int((a+b)*(a+b)/whole))
		}
	}
	return g
}

// known says whether seeds tell anything: where no figure of either side varies
// and both differ, all seeds had the same requests, and are one.
func (g gap) known() bool { return g.freedom > 0 && (g.difference == 0 || g.varied) }

func varies(values []float64) bool {
	return slices.ContainsFunc(values, func(v float64) bool { return v != values[0] })
}

// absolute is the difference as it stands.
func (g gap) absolute() Interval {
	if g.freedom == 0 {
		return around(g.difference, 0)
	}
	return around(g.difference, student(g.freedom)*math.Sqrt(g.varDifference))
}

// relative is the difference as a part of the base, by Fieller: it holds zero
// where the absolute one does. There is none where the base may be nothing.
func (g gap) relative() (Interval, bool) {
	if g.base == 0 {
		return Interval{}, false
	}
	part := g.difference / g.base
	if g.freedom == 0 {
		return around(part, 0), true
	}
	t := student(g.freedom)
	a := g.base*g.base - t*t*g.varBase
	b := g.difference*g.base - t*t*g.together
	c := g.difference*g.difference - t*t*g.varDifference
	if a <= 0 {
		return Interval{}, false
	}
	reach := math.Sqrt(max(0, b*b-a*c))
	i := Interval{Mean: rounded(part), Low: rounded((b - reach) / a), High: rounded((b + reach) / a)}
	i.Low, i.High = min(i.Low, i.Mean), max(i.High, i.Mean) // last bits
	return i, true
}

// change is a gap as a metric tells it, in parts of the base if it can be.
func (m Metric) change(g gap) (change Interval, relative bool) {
	if m.relative() {
		if change, relative = g.relative(); relative {
			return change, true
		}
	}
	return g.absolute(), false
}

func meanOf(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// covariance is that of the means of two series over the same seeds, as the
// seeds let guess it; of one seed it is 0.
func covariance(a, b []float64) float64 {
	n := float64(len(a))
	if n < 2 {
		return 0
	}
	meanA, meanB, sum := meanOf(a), meanOf(b), 0.0
	for i := range a {
		sum += (a[i] - meanA) * (b[i] - meanB)
	}
	return sum / (n - 1) / n
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

package replay

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What a histogram says is within a half of a hundredth of what all values say,
// whatever the values.
func TestHistogramIsClose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 1<<50), 1, 300).Draw(t, "values")
		var h Histogram
		sum := 0.0
		for _, v := range values {
			h.add(v, 1)
			sum += float64(v)
		}
		slices.Sort(values)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		rank := max(int(math.Ceil(q*float64(len(values)))), 1)
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 0.005*want+0.5 {
				t.Fatalf("%s is %g, and %g by all values", what, got, want)
			}
		}
		near("a quantile", h.Quantile(q), float64(values[rank-1]))
		near("the mean", h.Mean(), sum/float64(len(values)))
		cdf := h.CDF(100)
		last := cdf[len(cdf)-1]
		if last.Part != 1 || !slices.IsSortedFunc(cdf, func(a, b CDFPoint) int { return int(math.Copysign(1, a.Value-b.Value)) }) {
			t.Fatalf("%v", cdf)
		}
		near("the end of the CDF", last.Value, float64(values[len(values)-1]))
	})
}

func TestBucketsFollowEachOther(t *testing.T) {
	for v := int64(1); v < 1<<20; v++ {
		if before, b := bucketOf(v-1), bucketOf(v); b != before && b != before+1 {
			t.Fatalf("%d is in bucket %d, and %d in %d", v-1, before, v, b)
		}
		if m := bucketMiddle(bucketOf(v)); math.Abs(m-float64(v)) > float64(v)/256+0.5 {
			t.Fatalf("%g stands for %d", m, v)
		}
	}
}

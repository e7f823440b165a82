package replay

import (
	"math"
	"math/bits"
)

// Histogram counts values, in nanoseconds or in parts of a million, in buckets
// that are 1/128 of their value wide. Its memory does not grow, and what it says
// depends on what was added, not on the order.
type Histogram struct {
	counts   []int64
	total    int64
	min, max int64
}

// Values below subBuckets have a bucket each; after that every power of two has
// subBuckets/2.
const (
	subBits    = 8
	subBuckets = 1 << subBits
)

func bucketOf(v int64) int {
	if v < subBuckets {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - subBits
	return shift<<(subBits-1) + int(v>>shift)
}

// bucketMiddle is what stands for all values of a bucket.
func bucketMiddle(b int) float64 {
	if b < subBuckets {
		return float64(b)
	}
	shift := b>>(subBits-1) - 1
	low := int64(b-shift<<(subBits-1)) << shift
	return float64(low) + float64(int64(1)<<shift-1)/2
}

// add counts a value so many times. Values below zero count as zero.
func (h *Histogram) add(v, times int64) {
	v = max(v, 0)
	b := bucketOf(v)
	if b >= len(h.counts) {
		h.counts = append(h.counts, make([]int64, b+64-len(h.counts))...)
	}
	if h.total == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.counts[b] += times
	h.total += times
}

// Count is how many values there are.
func (h *Histogram) Count() int64 { return h.total }

// Mean is within half a bucket of the mean, that is 0.4 %.
func (h *Histogram) Mean() float64 {
	if h.total == 0 {
		return 0
	}
	sum := 0.0
	for b, n := range h.counts {
		sum += bucketMiddle(b) * float64(n)
	}
	return sum / float64(h.total)
}

// Quantile is the value that a part q of all do not exceed, within half a bucket.
func (h *Histogram) Quantile(q float64) float64 {
	if h.total == 0 {
		return 0
	}
	rank := int64(math.Ceil(q * float64(h.total)))
	rank = min(max(rank, 1), h.total)
	for b, n := range h.counts {
		if rank -= n; rank <= 0 {
			return min(max(bucketMiddle(b), float64(h.min)), float64(h.max))
		}
	}
	return float64(h.max)
}

// CDFPoint says that a part of the values do not exceed one.
type CDFPoint struct {
	Value float64 `json:"value"`
	Part  float64 `json:"part"`
}

// CDF is the distribution in about so many points of equal parts, with the tail
// beyond 0.99 in finer ones.
func (h *Histogram) CDF(points int) []CDFPoint {
	if h.total == 0 {
		return nil
	}
	var cdf []CDFPoint
	next, passed := 0.0, int64(0)
	for b, n := range h.counts {
		if n == 0 {
			continue
		}
		passed += n
		part := float64(passed) / float64(h.total)
		if part < next && passed < h.total {
			continue
		}
		value := min(max(bucketMiddle(b), float64(h.min)), float64(h.max))
		cdf = append(cdf, CDFPoint{Value: value, Part: part})
		step := 1 / float64(points)
		if part >= 0.99 {
			step /= 20
		}
		next = part + step
	}
	return cdf
}

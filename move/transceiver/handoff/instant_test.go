package handoff

import (
	"math"
	"testing"
)

// However long another process says that something lasts, no instant wraps
// around, and none is so far off that it cannot be waited for.
func TestForeignSpansAreBounded(t *testing.T) {
	const longest = int64(math.MaxInt64 / 1000) // microseconds in nanoseconds
	for _, ms := range []uint64{0, 1, 1e13, 1e16, math.MaxInt64, math.MaxUint64} {
		span := Span(ms)
		if span < 0 || int64(span) > longest || ms > 0 && span == 0 {
			t.Errorf("%d ms are a span of %d µs", ms, span)
		}
		if now := Minute; after(now, ms) < now || after(now, ms) > now+MaxSpan {
			t.Errorf("%d ms after %d is %d", ms, now, after(now, ms))
		}
	}
	if ms := until(Second, Never); Span(ms) != MaxSpan {
		t.Errorf("until never are %d ms", ms)
	}
}

package gateway

import (
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	var h histogram
	h.observe(500*time.Microsecond, 1)
	h.observe(600*time.Microsecond, 2)
	h.observe(time.Hour, 1)
	d := h.snapshot()
	if d.Count != 4 || d.Buckets[0.0005] != 1 || d.Buckets[0.001] != 3 || d.Buckets[300] != 3 || d.Sum < 3600 {
		t.Errorf("got %+v", d)
	}
}

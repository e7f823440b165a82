package gateway

import (
	"testing"
	"time"

	"meridian/see/ledger"
)

// Latencies of sampled requests show their trace, each in its bucket.
func TestExemplars(t *testing.T) {
	var c counters
	for trace, ms := range map[string]float64{"fast": 1.5, "slow": 1500, "never": 1e9} {
		c.observe(&ledger.Record{Trace: &ledger.Trace{ID: trace, Sampled: true}, Latency: ledger.Latency{TotalMs: ms}})
	}
	c.observe(&ledger.Record{Trace: &ledger.Trace{ID: "unseen"}, Latency: ledger.Latency{TotalMs: 1500}})
	c.observe(&ledger.Record{Latency: ledger.Latency{TotalMs: 1500}})
	d := c.phases[len(Phases)-1].snapshot()
	if d.Count != 5 || len(d.Exemplars) != 3 || d.Exemplars[0].Trace != "fast" || d.Exemplars[1].Trace != "slow" || d.Exemplars[1].Seconds != 1.5 || time.Since(d.Exemplars[2].At) > time.Hour {
		t.Errorf("%d samples, shown by %+v", d.Count, d.Exemplars)
	}
}

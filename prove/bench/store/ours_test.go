package store

import (
	"testing"

	"meridian/prove/bench"
)

// TestOurs runs a store of real processes, and compares what it gives back: small
// objects, which travel in messages, and large ones, which do not.
func TestOurs(t *testing.T) {
	o := smallRun(t)
	o.Objects, o.Clients, o.Rounds, o.Peers = []bench.Size{size(t, "4KiB"), size(t, "512KiB")}, []int{2}, 1, []string{"none"}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 8 {
		t.Errorf("%d rows", len(report.Rows))
	}
	for _, row := range report.Rows {
		if row.GBps <= 0 || row.P50 <= 0 {
			t.Errorf("%+v", row)
		}
	}
}

package deciding

import (
	"errors"
	"testing"

	"meridian/decide/policy"
	"meridian/prove/bench"
)

func TestSchedAllocatesNothing(t *testing.T) {
	r, err := RunSched(t.Context(), SchedOptions{Options{Rounds: 1}, 64})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(crowds)*len(policy.Names()) {
		t.Errorf("%d rows for %d policies", len(r.Rows), len(policy.Names()))
	}
	for _, row := range r.Rows {
		if row.Allocations > 0.01 {
			t.Errorf("%s allocates %v times", row.What, row.Allocations)
		}
	}
	if _, err := RunSched(t.Context(), SchedOptions{Options{Rounds: 1}, 1}); !errors.Is(err, bench.ErrOptions) {
		t.Error("a single request:", err)
	}
}

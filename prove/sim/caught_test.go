//go:build mutant

package sim

import (
	"os"
	"strconv"
	"testing"
)

// TestCaught is TestMutants' other half, in a build that has the bugs.
func TestCaught(t *testing.T) {
	seeds, err := strconv.Atoi(os.Getenv("MERIDIAN_MUTANT_SEEDS"))
	if err != nil {
		t.Skip("TestMutants starts this")
	}
	for seed := range uint64(seeds) {
		if r := Run(Options{Seed: seed}); r.Violation != nil {
			t.Logf("caught at seed %d: %v", seed, r.Violation)
			return
		}
	}
	t.Error("no seed caught it")
}

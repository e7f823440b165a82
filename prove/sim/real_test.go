//go:build real

package sim

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestRealWorlds is the long form: ten thousand worlds of each kind, or as many
// of them as two minutes allow. With MERIDIAN_SIM_MINUTES it is as many as fit
// into those, from a seed that no run before has begun with.
func TestRealWorlds(t *testing.T) {
	o := SeedOptions{Seeds: 10000, For: 2 * time.Minute, Failures: 3}
	if text := os.Getenv("MERIDIAN_SIM_MINUTES"); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("MERIDIAN_SIM_MINUTES: %v", err)
		}
		o = SeedOptions{From: uint64(time.Now().Unix()) << 20, For: time.Duration(minutes*float64(time.Minute)) / time.Duration(len(Kinds())), Failures: 3}
	}
	for _, kind := range Kinds() {
		o.World = kind
		found, err := RunSeeds(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found.Failures {
			report(t, r)
		}
		t.Logf("%d worlds of kind %s from seed %d in %v", found.Tally.Worlds, kind, o.From, found.Took)
	}
}

package handoff_test

import (
	"flag"
	"testing"

	"meridian/move/transceiver/handoff/handoffsim"
)

var (
	seeds = flag.Int("handoff.seeds", 400, "how many worlds to simulate")
	seed  = flag.Uint64("handoff.seed", 0, "simulate this world only")
)

// Many hand-offs under loss, delay, repetition, partitions, crashes, cancels and
// builds that plan otherwise: every promise holds in every world.
func TestSimulation(t *testing.T) {
	first, count := uint64(1), uint64(*seeds)
	if testing.Short() {
		count /= 10
	}
	if *seed != 0 {
		first, count = *seed, 1
	}
	var total handoffsim.Tally
	for at := first; at < first+count; at++ {
		r := handoffsim.Run(at)
		if r.Violation != nil {
			t.Fatalf("%sto see it again: go test ./move/transceiver/handoff -run TestSimulation -handoff.seed %d", r.Tell(120), at)
		}
		total.Add(&r.Tally)
	}
	t.Logf("%d worlds: %+v", count, total)
	if *seed == 0 && (total.Ready < count || total.Failed < count/10 || total.Crashes < count/20 || total.Elsewhere == 0) {
		t.Errorf("too little happened: %+v", total)
	}
}

// FuzzSimulation is the same for as long as one likes. Every execution is a whole
// world; its number brings it back.
func FuzzSimulation(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, number uint64) {
		if r := handoffsim.Run(number); r.Violation != nil {
			t.Fatal(r.Tell(120))
		}
	})
}

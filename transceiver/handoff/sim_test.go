package handoff_test

import (
	"flag"
	"testing"
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
	total := tally{why: make(map[string]int)}
	for at := first; at < first+count; at++ {
		w := newWorld(at, at%5 == 0)
		w.live()
		if w.broken != "" {
			t.Fatalf("seed %d: %s\n%s\nto see it again: go test ./transceiver/handoff -run TestSimulation -handoff.seed %d", at, w.broken, w.tell(120), at)
		}
		total.add(w.tally)
	}
	t.Logf("%d worlds: %+v", count, total)
	if *seed == 0 && (total.ready < int(count) || total.failed < int(count)/10 || total.crashes < int(count)/20 || total.retriedElsewhere == 0) {
		t.Errorf("too little happened: %+v", total)
	}
}

func (t *tally) add(other tally) {
	t.ready += other.ready
	t.failed += other.failed
	t.freed += other.freed
	t.messages += other.messages
	t.lost += other.lost
	t.crashes += other.crashes
	t.events += other.events
	t.retriedElsewhere += other.retriedElsewhere
	for why, n := range other.why {
		t.why[why] += n
	}
}

// FuzzSimulation is the same for as long as one likes. Every execution is a whole
// world; its number brings it back.
func FuzzSimulation(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, number uint64) {
		w := newWorld(number, number%5 == 0)
		if w.live(); w.broken != "" {
			t.Fatalf("seed %d: %s\n%s", number, w.broken, w.tell(120))
		}
	})
}

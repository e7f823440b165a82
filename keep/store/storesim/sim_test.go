package storesim_test

import (
	"flag"
	"testing"

	"meridian/keep/store/storesim"
)

var (
	seeds = flag.Int("store.seeds", 300, "how many worlds to simulate")
	from  = flag.Uint64("store.from", 1, "the first of them")
	tell  = flag.Int("store.tell", 150, "how much of a story to tell")
	seed  = flag.Uint64("store.seed", 0, "simulate this world only")
)

// The object cache under loss, delay, repetition, cuts, crashes, pauses, rogue
// writers and dying producers: every promise holds in every world.
func TestSimulation(t *testing.T) {
	first, count := *from, uint64(*seeds)
	if testing.Short() {
		count /= 10
	}
	if *seed != 0 {
		first, count = *seed, 1
	}
	var total storesim.Tally
	for at := first; at < first+count; at++ {
		r := storesim.Run(at)
		if r.Violation != nil {
			t.Fatalf("%sto see it again: go test ./keep/store/storesim -run TestSimulation -store.seed %d", r.Tell(*tell), at)
		}
		total.Add(&r.Tally)
	}
	t.Logf("%d worlds, %d events", count, total.Events)
	for _, s := range total.Sections() {
		for _, c := range s.Counts {
			t.Logf("%8d %s", *c.N, c.Name)
		}
	}
}

// The same seed tells the same story.
func TestSameSeedSameStory(t *testing.T) {
	for at := range uint64(30) {
		if one, two := storesim.Run(at+500), storesim.Run(at+500); one.Hash() != two.Hash() || one.Tally != two.Tally {
			t.Fatalf("seed %d tells two stories", at+500)
		}
	}
}

package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"meridian/internal/seeded"
	"meridian/move/transceiver/handoff"
)

// Worlds of hand-offs exercise everything that is counted, but for two ends that
// are too rare for so few, and nothing that has no name.
func TestHandOffWorlds(t *testing.T) {
	found, err := RunSeeds(t.Context(), SeedOptions{World: HandOffs, Seeds: 300})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found.Failures {
		report(t, r)
	}
	rare := []string{handoff.ErrTaken.Error(), handoff.ErrDeclined.Error()}
	for _, s := range found.Tally.HandOffs.Sections() {
		for _, c := range s.Counts {
			if unknown := c.Name == seeded.OtherReason; (*c.N == 0) != unknown && !slices.Contains(rare, c.Name) {
				t.Errorf("%s: %q was counted %d times", s.Title, c.Name, *c.N)
			}
		}
	}
	var text strings.Builder
	if err := found.Tally.Write(&text); err != nil || !strings.Contains(text.String(), " ready\n") || strings.Contains(text.String(), "read done") {
		t.Errorf("%v: the summary is not that of hand-offs:\n%s", err, text.String())
	}
}

func TestSameSeedSameHandOffs(t *testing.T) {
	var s reusable
	defer s.arenas.close()
	for seed := range uint64(60) {
		o := Options{World: HandOffs, Seed: seed + 1000}
		first, again := s.run(o), Run(o)
		if x, y := first.Lines(), again.Lines(); !slices.Equal(x, y) {
			t.Fatalf("seed %d differs from itself:\n%s", o.Seed, cmp.Diff(x, y))
		}
		if first.Tally != again.Tally || first.Tally.HandOffs.Events == 0 {
			t.Errorf("seed %d counts %+v, then %+v", o.Seed, first.Tally, again.Tally)
		}
		s.reuse(first)
	}
}

func TestTraceOfHandOffsIsReplayed(t *testing.T) {
	o := Options{World: HandOffs, Seed: 12}
	var trace strings.Builder
	if err := Run(o).WriteTrace(&trace); err != nil {
		t.Fatal(err)
	}
	again, err := Replay(strings.NewReader(trace.String()))
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(o, again.Options); difference != "" {
		t.Error(difference)
	}
	if _, err := Replay(strings.NewReader(strings.Replace(trace.String(), "world handoff\n", "", 1))); err == nil {
		t.Error("the world of agents tells the story of hand-offs")
	}
	if _, err := Replay(strings.NewReader(traceTitle + "\nworld weather\n\n")); err == nil || !strings.Contains(err.Error(), `no world "weather"; there is agents, handoff, store`) {
		t.Error(err)
	}
}

// A story stays what it was while the stage plays the next world.
func TestStoriesAreKept(t *testing.T) {
	var s reusable
	defer s.arenas.close()
	for _, kind := range Kinds() {
		s.reuse(s.run(Options{World: kind, Seed: 1}))
		kept := s.run(Options{World: kind, Seed: 2})
		before := kept.Lines()
		s.run(Options{World: kind, Seed: 3})
		if after := kept.Lines(); !slices.Equal(before, after) {
			t.Errorf("%s: the next world has written over the story:\n%s", kind, cmp.Diff(before, after))
		}
	}
}

func TestStoryNamesItsWorld(t *testing.T) {
	r := Run(Options{World: HandOffs, Seed: 4})
	r.Violation = &Violation{Rule: "promises are kept", What: "this one was not", At: time.Second, Event: len(r.story)}
	var b strings.Builder
	if err := r.Tell(&b, 50); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"seed 4 breaks a promise", "the world: ", " hosts, ", "hears from", "to see it again: meridian sim --world handoff --seed 4\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the story does not say %q:\n%s", want, b.String())
		}
	}
}

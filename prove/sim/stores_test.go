package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"meridian/internal/seeded"
	"meridian/keep/store/owner"
)

// Worlds of the object cache keep every promise, and exercise all that is counted,
// but for a heap without room and an owner without time, which are too rare for so few.
func TestStoreWorlds(t *testing.T) {
	found, err := RunSeeds(t.Context(), SeedOptions{World: Store, Seeds: 300})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found.Failures {
		report(t, r)
	}
	for _, s := range found.Tally.Store.Sections() {
		for _, c := range s.Counts {
			if *c.N == 0 && c.Name != seeded.OtherReason && c.Name != owner.ErrFull.Error() && c.Name != owner.ErrOverloaded.Error() {
				t.Errorf("%s: %q was never counted", s.Title, c.Name)
			}
		}
	}
	var text strings.Builder
	if err := found.Tally.Write(&text); err != nil || !strings.Contains(text.String(), " values got\n") || strings.Contains(text.String(), "read done") {
		t.Errorf("%v: the summary is not that of the object cache:\n%s", err, text.String())
	}
}

func TestTraceOfTheStoreIsReplayed(t *testing.T) {
	o := Options{World: Store, Seed: 12}
	first := Run(o)
	var trace strings.Builder
	if err := first.WriteTrace(&trace); err != nil {
		t.Fatal(err)
	}
	again, err := Replay(strings.NewReader(trace.String()))
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(o, again.Options); difference != "" {
		t.Error(difference)
	}
	if !slices.Equal(first.Lines(), again.Lines()) {
		t.Error("the same seed tells another story")
	}
}

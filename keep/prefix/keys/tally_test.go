package keys_test

import (
	"fmt"
	"strings"
	"testing"

	"meridian/keep/prefix/keys"
)

// However many tenants come, the tally stays small, the one that is used most is told of by
// its name, and nothing that was counted is lost.
func TestTallyIsBounded(t *testing.T) {
	var tally keys.Tally
	if len(tally.Uses()) != 0 {
		t.Fatal("something is counted")
	}
	for n := range 1000 {
		tally.Add(keys.Use{Model: "m", Tenant: "busy", Finds: 1, Hits: 1, TokensAsked: 10, TokensFound: 8})
		tally.Add(keys.Use{Model: strings.Repeat("long", 100), Tenant: fmt.Sprint("tenant-", n), Keeps: 1, UnitsKept: 2, BytesKept: 3})
	}
	all := tally.Uses()
	if len(all) != keys.MaxUses+1 || all[0].Tenant != "busy" || all[0].Finds != 1000 || all[0].TokensFound != 8000 || all[len(all)-1].Model != keys.Others {
		t.Fatalf("%d uses, first %+v, last %+v", len(all), all[0], all[len(all)-1])
	}
	var keeps, bytes uint64
	for _, u := range all {
		keeps, bytes = keeps+u.Keeps, bytes+u.BytesKept
		if len(u.Model) > 140 {
			t.Errorf("a name of %d bytes is kept", len(u.Model))
		}
	}
	if keeps != 1000 || bytes != 3000 {
		t.Errorf("%d keeps of %d bytes", keeps, bytes)
	}
}

// However many models come, few are told apart, what one has never becomes less, and nothing
// is lost.
func TestModelTallyIsBounded(t *testing.T) {
	var tally keys.ModelTally
	before := make(map[string]uint64)
	for n := range 3 * keys.MaxModels {
		for model := range n {
			tally.Add(keys.Use{Model: fmt.Sprint("model-", model), Tenant: fmt.Sprint("tenant-", n), Finds: 1, FoundIn: [len(keys.Tiers)]uint64{1, 2, 0, 3}})
		}
		all := tally.Uses()
		if len(all) > keys.MaxModels+1 {
			t.Fatalf("%d models", len(all))
		}
		sum := uint64(0)
		for _, u := range all {
			if u.Finds < before[u.Model] || u.FoundIn != [len(keys.Tiers)]uint64{u.Finds, 2 * u.Finds, 0, 3 * u.Finds} || u.Tenant != "" {
				t.Fatalf("%+v, %d before", u, before[u.Model])
			}
			before[u.Model] = u.Finds
			sum += u.Finds
		}
		if sum != uint64(n*(n+1)/2) {
			t.Fatalf("%d finds in all", sum)
		}
	}
	if before[keys.Others] == 0 {
		t.Error("nothing is counted together")
	}
}

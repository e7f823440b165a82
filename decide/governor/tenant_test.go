package governor

import (
	"testing"

	"meridian/decide/phase"
)

// A tenant that comes back is no further behind than the least served of those
// that are here, and a sequence that ends, or is forgotten, is here no more.
func TestTenantsThatComeBack(t *testing.T) {
	g := open(t, options(t, &scripted{}))
	of := func(s phase.Sequence, tenant int32) Facts {
		a := arrival(s)
		a.Tenant = tenant
		return Facts{Arrivals: []Arrival{a}}
	}
	step(t, g, of(1, 2))
	step(t, g, Facts{Commits: []Commit{{Sequence: 1, Computed: 4, Tokens: []uint32{thinkID}}}})
	step(t, g, of(2, 1)) // new, beside one that has read 4 tokens and written 1
	tenants := g.snapshot.Tenants
	if tenants[2].Served != 6 || tenants[1].Served != 6 || tenants[0].Served != 0 {
		t.Errorf("%+v", tenants)
	}
	step(t, g, Facts{Ended: []phase.Sequence{1, 2}})
	for i, tenant := range g.snapshot.Tenants {
		if tenant.Here != 0 {
			t.Errorf("tenant %d has %d requests here", i, tenant.Here)
		}
	}
	// No other tenant is here that it could be held against.
	step(t, g, of(3, 0))
	if got := g.snapshot.Tenants[0]; got.Served != 0 || got.Here != 1 {
		t.Errorf("%+v", got)
	}
}

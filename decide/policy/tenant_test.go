package policy

import "testing"

// Who was away comes back as the least served of those that stayed, and no other
// is set back.
func TestJoinLiftsWhoWasAway(t *testing.T) {
	tenants := Join(Join(nil, 2), 1)
	if len(tenants) != 3 || tenants[0].Here != 0 || tenants[1].Here != 1 || tenants[2].Here != 1 {
		t.Fatalf("%+v", tenants)
	}
	tenants[1].Served, tenants[2].Served = 700, 300
	tenants = Join(tenants, 0)
	if got := tenants[0].Served; got != 300 {
		t.Errorf("a newcomer starts at %d, not at the 300 of the least served", got)
	}
	tenants[1].Leave()
	if tenants = Join(tenants, 1); tenants[1].Served != 700 {
		t.Errorf("one that was served more comes back with %d, not with its 700", tenants[1].Served)
	}
	tenants[0].Served = 0
	if tenants = Join(tenants, 0); tenants[0].Served != 0 || tenants[0].Here != 2 {
		t.Errorf("one that is here was lifted: %+v", tenants[0])
	}
	for i := range tenants {
		tenants[i].Here = 0
	}
	if tenants = Join(tenants, 2); tenants[2].Served != 300 {
		t.Errorf("alone: %+v", tenants[2])
	}
}

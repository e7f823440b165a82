package governing

import (
	"math"
	"testing"

	"meridian/serve/door/doorpb"
)

// What an engine counts up is taken forward only, and not what it counted before it came;
// one that begins anew or lies cannot make it fall, or more than it can be.
func TestTotals(t *testing.T) {
	c := &clock{}
	g := newGovernors(t, testOptions(t, c, "stock"))
	number := uint64(0)
	tell := func(a *Connection, late, opened uint64) {
		t.Helper()
		number++
		step(t, a, &doorpb.Step{Number: number, FreeBlocks: 64, Late: late, FailedOpen: opened})
	}
	want := func(late, opened int64) {
		t.Helper()
		if m := g.Metrics(); m.DecidedLate != late || m.FailedOpen != opened {
			t.Errorf("step %d: %d late, %d failed open; want %d and %d", number, m.DecidedLate, m.FailedOpen, late, opened)
		}
	}
	a := govern(t, g, "a", able())
	tell(a, 100, 7)
	want(0, 0)
	tell(a, 103, 8)
	tell(a, 103, 8)
	want(3, 1)
	tell(a, 2, 0) // it counts anew
	want(3, 1)
	tell(a, 4, 1)
	want(5, 2)
	tell(a, math.MaxUint64, math.MaxUint64)
	want(5+maxRise, 2+maxRise)
	tell(a, 0, 0)
	tell(a, 1, 1)
	want(6+maxRise, 3+maxRise)
	if e := g.Engines()[0]; e.Late != 6+maxRise || e.FailedOpen != 3+maxRise {
		t.Errorf("it stands so: %+v", e)
	}
	a.Close()
	want(6+maxRise, 3+maxRise)
	a, number = govern(t, g, "a", able()), 0
	tell(a, 50, 50) // of the connection before
	tell(a, 51, 50)
	want(7+maxRise, 3+maxRise)
}

package agent

import (
	"strings"
	"testing"
	"time"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// ranked names fabrics in the order they are tried in, of candidates "p" by
// preference, each with what was measured (0: nothing).
func ranked(measured ...time.Duration) string {
	candidates := make([]candidate, len(measured))
	for i, d := range measured {
		candidates[i] = candidate{
			name: string(rune('a' + i)), peerHasIt: true, local: true, remote: true, expected: d, measured: d > 0,
			capabilities: fabric.Capabilities{Read: true, Write: true, Kinds: []mem.Kind{mem.DRAM}},
		}
	}
	var names []string
	for _, c := range choose(fabric.Read, []mem.Kind{mem.DRAM}, []mem.Kind{mem.DRAM}, candidates) {
		names = append(names, c.Fabric)
	}
	return strings.Join(names, "")
}

func TestChoiceByMeasure(t *testing.T) {
	for _, c := range []struct {
		measured []time.Duration
		want     string
	}{
		{[]time.Duration{0, 0, 0}, "abc"},
		{[]time.Duration{10, 6, 7}, "abc"}, // faster, not clearly
		{[]time.Duration{10, 5, 7}, "bac"},
		{[]time.Duration{10, 6, 4}, "cab"}, // c beats a, a stands before b, b before c: who leads is who beats the leader
		{[]time.Duration{10, 0, 1}, "cab"}, // the unmeasured one in between changes nothing
		{[]time.Duration{0, 10, 1}, "acb"}, // none beats what was not measured
		{[]time.Duration{16, 8, 4, 2}, "dcba"},
	} {
		if got := ranked(c.measured...); got != c.want {
			t.Errorf("%v: %s, want %s", c.measured, got, c.want)
		}
	}
}

func TestChoiceRefuses(t *testing.T) {
	all := fabric.Capabilities{Read: true, Write: true, Kinds: []mem.Kind{mem.DRAM}}
	good := candidate{name: "x", capabilities: all, peerHasIt: true, local: true, remote: true}
	for want, change := range map[string]func(*candidate){
		"":                                    func(*candidate) {},
		"cannot write":                        func(c *candidate) { c.capabilities.Write = false },
		"does not reach local memory of kind": func(c *candidate) { c.capabilities.Kinds = nil },
		"the peer does not have it":           func(c *candidate) { c.peerHasIt = false },
		"local memory is not registered":      func(c *candidate) { c.local = false },
		"the peer's memory is not registered": func(c *candidate) { c.remote = false },
	} {
		c := good
		change(&c)
		choices := choose(fabric.Write, []mem.Kind{mem.DRAM}, []mem.Kind{mem.DRAM}, []candidate{c, good})
		if last := choices[1]; (last.Refused == "") != (want == "") || !strings.Contains(last.Refused, want) {
			t.Errorf("want %q, got %+v", want, choices)
		}
	}
}

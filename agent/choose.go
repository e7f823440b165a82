package agent

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"meridian/fabric"
	"meridian/mem"
)

// Choice is one fabric as a candidate for a request.
type Choice struct {
	Fabric string `json:"fabric"`
	// Refused says why it cannot; empty when it can.
	Refused string `json:"refused,omitempty"`
	// Expected is how long it would take, by its own estimate or by what was
	// measured with this peer.
	Expected time.Duration `json:"expected_ns,omitempty"`
	Measured bool          `json:"measured,omitempty"`
	// Failed says how it failed when it was tried.
	Failed string `json:"failed,omitempty"`

	// Preference is its place in the configuration, from 1.
	Preference int `json:"preference"`
}

// candidate is what the choice is made from.
type candidate struct {
	name         string
	capabilities fabric.Capabilities
	peerHasIt    bool
	local        bool // the list's regions are registered with it, here
	remote       bool // …and there
	expected     time.Duration
	measured     bool
}

// choose ranks the fabrics for a request in four steps: the kinds of memory on
// both sides, the fabrics that both sides have, the registrations that cover
// both lists, and among those the preference of the configuration. Measured
// cost may overturn the preference when it is clear: half the time or less.
func choose(op fabric.Op, local, remote []mem.Kind, candidates []candidate) []Choice {
	choices := make([]Choice, len(candidates))
	for i, c := range candidates {
		choices[i] = Choice{Fabric: c.name, Refused: refusal(op, local, remote, c), Expected: c.expected, Measured: c.measured, Preference: i + 1}
	}
	slices.SortStableFunc(choices, func(x, y Choice) int {
		if (x.Refused == "") != (y.Refused == "") {
			if x.Refused == "" {
				return -1
			}
			return 1
		}
		if x.Measured && y.Measured && (2*x.Expected <= y.Expected || 2*y.Expected <= x.Expected) {
			return cmp.Compare(x.Expected, y.Expected)
		}
		return cmp.Compare(x.Preference, y.Preference)
	})
	return choices
}

func refusal(op fabric.Op, local, remote []mem.Kind, c candidate) string {
	for _, side := range []struct {
		name  string
		kinds []mem.Kind
	}{{"local", local}, {"remote", remote}} {
		for _, k := range side.kinds {
			if !slices.Contains(c.capabilities.Kinds, k) {
				return fmt.Sprintf("does not reach %s memory of kind %v", side.name, k)
			}
		}
	}
	switch {
	case op == fabric.Read && !c.capabilities.Read, op == fabric.Write && !c.capabilities.Write:
		return fmt.Sprintf("cannot %v", op)
	case !c.peerHasIt:
		return "the peer does not have it"
	case !c.local:
		return "local memory is not registered with it"
	case !c.remote:
		return "the peer's memory is not registered with it"
	}
	return ""
}

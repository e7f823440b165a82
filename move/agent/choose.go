package agent

import (
	"fmt"
	"slices"
	"time"

	"meridian/move/fabric"
	"meridian/move/mem"
)

// Choice is one fabric as a candidate for a request.
type Choice struct {
	Fabric string `json:"fabric"`
	// Refused says why it cannot; empty when it can.
	Refused string `json:"refused,omitempty"`
	// Expected is how long it would take by what was measured with this peer;
	// without Measured nothing was.
	Expected time.Duration `json:"expected_ns,omitempty"`
	Measured bool          `json:"measured,omitempty"`
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
	var able, refused []Choice
	for i, c := range candidates {
		choice := Choice{Fabric: c.name, Refused: refusal(op, local, remote, c), Expected: c.expected, Measured: c.measured, Preference: i + 1}
		if choice.Refused != "" {
			refused = append(refused, choice)
		} else {
			able = append(able, choice)
		}
	}
	// Each rank goes to the most preferred of what is left, unless one is
	// clearly faster. Sorting would not do: "clearly faster" is not transitive.
	for rank := range able {
		best := rank
		for i := rank + 1; i < len(able); i++ {
			if able[i].Measured && able[best].Measured && 2*able[i].Expected <= able[best].Expected {
				best = i
			}
		}
		chosen := able[best]
		copy(able[rank+1:best+1], able[rank:best])
		able[rank] = chosen
	}
	return append(able, refused...)
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

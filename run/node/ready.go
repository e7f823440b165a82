package node

import (
	"fmt"

	"meridian/keep/store/tier"
)

// Readiness is how an agent stands, as its admin socket says without asking any other process.
type Readiness struct {
	// Ready is whether it serves. It does also where a tier does not.
	Ready bool        `json:"ready"`
	Tiers []TierState `json:"tiers,omitempty"`
}

// TierState is whether a tier of the object cache is used; where not, why.
type TierState struct {
	Name    string `json:"name"`
	Up      bool   `json:"up"`
	Problem string `json:"problem,omitempty"`
}

func (n *Agent) readiness() Readiness {
	r := Readiness{Ready: true}
	for _, t := range n.tiers {
		r.Tiers = append(r.Tiers, stateOf(t))
	}
	return r
}

func stateOf(t *tier.Opening) TierState {
	s := TierState{Name: t.Name(), Up: !t.Stats().Down}
	if s.Up {
		return s
	}
	s.Problem = tier.ErrDown.Error()
	if isOpen, why := t.Opened(); !isOpen {
		s.Problem = "it is being opened"
		if read, of := t.Progress(); of > 0 {
			s.Problem = fmt.Sprintf("it is being opened: %d of %d segments are read", read, of)
		}
		if why != nil {
			s.Problem = "it cannot be opened, and is tried again: " + why.Error()
		}
	}
	return s
}

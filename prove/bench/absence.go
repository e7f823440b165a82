package bench

import "errors"

// Absence is a peer that is not in the report.
type Absence struct {
	Peer string
	// Fabric is the one beside which it is not; empty means any.
	Fabric string
	Why    string
	// Fix is what to type to have it.
	Fix string
}

func (a Absence) String() string {
	text := a.Peer + " is absent"
	if a.Fabric != "" {
		text += " beside " + a.Fabric
	}
	text += ": " + a.Why
	if a.Fix != "" {
		text += "; to have it: " + a.Fix
	}
	return text
}

// ErrPeer means that a peer that was asked for by name cannot be measured.
var ErrPeer = errors.New("bench: a peer that was named cannot be measured")

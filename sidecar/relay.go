package sidecar

import (
	"sync/atomic"

	"meridian/transceiver/handoff"
)

// Relay brings a transceiver's events to the sidecar that is opened after it. The
// zero Relay is ready; what comes while no sidecar is open is of no engine of its.
type Relay struct{ to atomic.Pointer[Sidecar] }

// Events is for transceiver.Options.
func (r *Relay) Events(e handoff.Event) {
	if s := r.to.Load(); s != nil {
		s.happened(e)
	}
}

// Passed is for transceiver.Options.
func (r *Relay) Passed(p handoff.PassTo) {
	if s := r.to.Load(); s != nil {
		s.passed(p)
	}
}

func (r *Relay) attach(s *Sidecar) { r.to.Store(s) }
func (r *Relay) detach(s *Sidecar) { r.to.CompareAndSwap(s, nil) }

package doorserver

import (
	"sync/atomic"

	"meridian/move/transceiver/handoff"
)

// Relay brings a transceiver's events to the server that is opened after it. The
// zero Relay is ready; what comes while no server is open is of no engine of its.
type Relay struct{ to atomic.Pointer[Server] }

// Events is for transceiver.Options.
func (r *Relay) Events(e handoff.Event) {
	if s := r.to.Load(); s != nil {
		s.handleEvent(e)
	}
}

// Passed is for transceiver.Options.
func (r *Relay) Passed(p handoff.NotifyRanks) {
	if s := r.to.Load(); s != nil {
		s.handlePassed(p)
	}
}

func (r *Relay) attach(s *Server) { r.to.Store(s) }
func (r *Relay) detach(s *Server) { r.to.CompareAndSwap(s, nil) }

package link

import "sync/atomic"

// KeepAlive counts for how many keep-alives nothing has come from a peer. It counts
// how often this side has looked, not the time that has passed: a process or a
// machine that stood still has not listened, either, and what came meanwhile waits
// in the socket.
type KeepAlive struct {
	heard  atomic.Bool  // since the last look
	missed atomic.Int32 // looks in a row that found nothing
	deaf   atomic.Bool  // this side does not read
}

// patience is how many looks in a row may find nothing.
const patience = 3

// Received notes that bytes came.
func (s *KeepAlive) Received() {
	if !s.heard.Load() { // most of the time it was: a read is no place to take a cache line from another core
		s.heard.Store(true)
	}
}

// Paused says that this side does not read for reasons of its own, or reads again: what the
// peer says meanwhile cannot be heard, so its silence does not count.
func (s *KeepAlive) Paused(is bool) {
	s.heard.Store(true)
	s.deaf.Store(is)
}

// Check is called once in a keep-alive. It says whether the peer is to be asked for a
// sign of life, and whether it is to be given up: after three keep-alives, and
// before four are over.
func (s *KeepAlive) Check() (ask, over bool) {
	if s.heard.Swap(false) || s.deaf.Load() {
		s.missed.Store(0)
		return false, false
	}
	missed := s.missed.Add(1)
	return missed < patience, missed >= patience
}

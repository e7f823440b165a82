package protocol

import (
	"fmt"
	"slices"

	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// Held is an object that stays where it lies until Unhold.
type Held struct {
	Lease    owner.LeaseID
	Location owner.Location
}

const (
	// maxHolds bounds how many objects are held at a time, each as often as it is;
	// maxHeldPart how much of the heap cannot be evicted because of them: else there
	// would be no room for what is new.
	maxHolds    = 1 << 16
	maxHeldPart = 0.5
)

// Hold leases the objects of a run, from the first on, to a reader in the owner's own
// process that reads them where they lie. Err is why it ends before the last. It counts
// as use of a chain: the last of them is evicted first.
func (s *Server) Hold(now kv.Instant, run [][]byte) (held []Held, err error) {
	if !s.Answers(now) {
		return nil, fmt.Errorf("%w: %s waits for the master", master.ErrSilent, s.options.Self.Name)
	}
	for _, name := range run {
		if s.holds >= maxHolds || s.objects.LeasedPart() > maxHeldPart {
			err = fmt.Errorf("%w: %d objects are held at %s; try again", owner.ErrOverloaded, s.holds, s.options.Self.Name)
			break
		}
		var h Held
		if h.Location, h.Lease, err = s.objects.Lease(now, name); err != nil {
			break
		}
		s.holds++
		held = append(held, h)
	}
	s.objects.Touch(now, run[:len(held)])
	return held, err
}

// Unhold says that an object that was held is not read any more, and whether it was
// found to be broken.
func (s *Server) Unhold(now kv.Instant, h Held, broken bool) []Effect {
	s.holds--
	s.objects.Release(h.Lease)
	if broken {
		s.objects.Distrust(h.Location)
	}
	return s.tellDrops(now)
}

// Touch notes that a chain was used, of which some may lie here: the last of them is
// evicted first.
func (s *Server) Touch(now kv.Instant, chain [][]byte) { s.objects.Touch(now, chain) }

// SetLastCopy says which copies of a run stand in for what they are copies of; the last of them is
// evicted first.
func (s *Server) SetLastCopy(now kv.Instant, run [][]byte, payer string, sole []bool) {
	for i := range slices.Backward(run) {
		s.objects.SetLastCopy(now, run[i], payer, sole[i])
	}
}

// Has reports whether an object can be read here.
func (s *Server) Has(now kv.Instant, name []byte) bool { return s.Answers(now) && s.objects.Has(name) }

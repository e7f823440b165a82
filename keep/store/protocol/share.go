package protocol

import (
	"errors"
	"fmt"

	"meridian/keep/store/owner"
	"meridian/kv"
)

// share is what one peer has of an owner at a time.
type share struct {
	requests int // writes and reads that go on
	values   int // bytes of its small values that wait for their keys
	locates  int // that wait for their object
}

// part is the part of a bound that one peer may have. The owner's own process is not
// bounded so: it would only keep itself waiting.
func part(bound int) int { return max(1, bound/4) }

// admit counts a write or a read of a peer with so many bytes that wait, or says that the
// peer has enough of them.
func (s *Server) admit(p kv.Member, most, value int) error {
	has := s.shares[p]
	switch {
	case p == s.options.Self:
	case has.requests >= part(most):
		return fmt.Errorf("%w: %d requests of %s go on at %s; try again", owner.ErrOverloaded, has.requests, p.Name, s.options.Self.Name)
	case has.values > 0 && has.values+value > part(s.options.MaxValues):
		return fmt.Errorf("%w: %d bytes of %s wait to be stored at %s; try again", owner.ErrOverloaded, has.values, p.Name, s.options.Self.Name)
	}
	s.charge(p, share{requests: 1, values: value})
	return nil
}

// refuse tells who asked why it is not done.
func (s *Server) refuse(to kv.Member, request uint64, err error) []Effect {
	if errors.Is(err, owner.ErrOverloaded) {
		s.objects.TurnedAway()
	}
	return []Effect{Send{to, request, &Reply{problemOf(err)}}}
}

// dismiss ends what admit began.
func (s *Server) dismiss(p kv.Member, value int) { s.charge(p, share{requests: -1, values: -value}) }

// charge adds to what a peer has.
func (s *Server) charge(p kv.Member, more share) {
	has := s.shares[p]
	has = share{has.requests + more.requests, has.values + more.values, has.locates + more.locates}
	s.values += more.values
	if s.shares[p] = has; has == (share{}) {
		delete(s.shares, p)
	}
}

package store

import (
	"context"
	"errors"
	"time"

	"meridian/keep/store/owner"
	"meridian/keep/store/protocol"
)

// RemoveOptions say which object is meant.
type RemoveOptions struct {
	// Tenant is whose key it is; default the store's.
	Tenant string
}

// Remove takes an object away.
func (s *Store) Remove(ctx context.Context, key string, o RemoveOptions) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	name, err := s.nameOf(o.Tenant, key)
	if err != nil {
		return err
	}
	answer, from, err := s.operate(ctx, operation{name: name, request: &protocol.Remove{Name: name}})
	if err == nil {
		if _, is := answer.(*protocol.Reply); !is {
			err = unexpected(from, answer)
		}
	}
	s.counters.remove(err)
	return err
}

// LocateOptions say which object is meant, and whether it is waited for.
type LocateOptions struct {
	Preferred string
	// Tenant is whose key it is; default the store's.
	Tenant string
	// Wait says that an object that is not there yet is waited for, as long as the
	// context lasts.
	Wait bool
}

// Meta is where an object lies.
type Meta struct {
	Owner string
	Rank  int // of the owner's name; -1 where it has just gone
	owner.Location
}

// Locate says where an object lies. One that is being written is ErrMissing and ErrBusy,
// both. It may not be there any more when the caller
// looks: a header's epoch tells.
func (s *Store) Locate(ctx context.Context, key string, o LocateOptions) (Meta, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return Meta{}, err
	}
	defer leave()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		at, err := s.locate(ctx, key, o)
		if !o.Wait || !errors.Is(err, ErrMissing) || !s.pause(ctx, pause) {
			return at, err
		}
	}
}

func (s *Store) locate(ctx context.Context, key string, o LocateOptions) (Meta, error) {
	name, err := s.nameOf(o.Tenant, key)
	if err != nil {
		return Meta{}, err
	}
	message := &protocol.Locate{Name: name}
	if o.Wait {
		message.WaitMs = uint64(max(1, duration(s.deadline(ctx)-s.now())/time.Millisecond))
	}
	answer, from, err := s.operate(ctx, operation{name: name, preferred: o.Preferred, request: message})
	if err != nil {
		return Meta{}, err
	}
	at, is := answer.(*protocol.Location)
	if !is {
		return Meta{}, unexpected(from, answer)
	}
	return Meta{Owner: from.Name, Rank: s.rank(from.Name), Location: at.Location}, nil
}

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"meridian/keep/store/protocol"
	"meridian/kv"
)

// Place is where an object lies in the arena of this process.
type Place struct{ Offset, Bytes uint64 }

// Source is a tier that had objects of a run. Took is how long it kept the reader waiting: in
// memory for sums to be verified, below it until the last of them was in memory.
type Source struct {
	Tier    string
	Objects int
	Took    time.Duration
}

// Hold is objects that stay where they lie until Release.
type Hold struct {
	// Places are those of the run's objects, from the first on.
	Places []Place
	// From says in which tiers they were, memory first, as far as there were any there.
	From []Source

	store   *Store
	held    []protocol.Held
	release sync.Once
}

// Hold keeps objects of a run where they lie, here and nowhere else, for a room that has
// them read there: from the first key on, up to one that is not here or that is broken. Err
// is why it ends before the last; what comes before is held all the same. The sums of
// every one are verified first: what is held was what was put, a moment ago. It counts as
// use of the run. Bytes is how large each is, or 0: one of another size is not looked at,
// and counts as missing.
//
// What is not in memory but in a tier is brought there first, as far as ctx lasts.
func (s *Store) Hold(ctx context.Context, r Run, bytes uint64) (*Hold, error) {
	names, err := s.namesOf(r)
	if err != nil {
		return &Hold{store: s}, err
	}
	began := time.Now()
	h, err := s.holdWhole(ctx, names, bytes)
	at, looked := len(h.held), time.Since(began)
	var came []arrival
	if errors.Is(err, ErrMissing) {
		came = s.cold.promote(ctx, names[at:], r.Payer)
	}
	if came != nil {
		began = time.Now()
		rest, more := s.holdWhole(ctx, names[at:], bytes)
		h.held, h.Places, err = append(h.held, rest.held...), append(h.Places, rest.Places...), more
		s.touch(names[:len(h.held)])
		looked += time.Since(began)
	}
	h.From = sourcesOf(at, looked, came[:min(len(came), len(h.held)-at)])
	s.cold.used(names[:len(h.held)])
	return h, err
}

// sourcesOf sums up where the objects of a run were: the first ones in memory, where looking
// at all of them took so long, the others where they came from.
func sourcesOf(warm int, looked time.Duration, others []arrival) (from []Source) {
	memory := Source{Tier: Memory, Objects: warm, Took: looked}
	for _, a := range others {
		i := slices.IndexFunc(from, func(s Source) bool { return s.Tier == a.tier })
		switch {
		case a.tier == "":
			memory.Objects++
		case i < 0:
			from = append(from, Source{a.tier, 1, a.after})
		default:
			from[i].Objects++
			from[i].Took = max(from[i].Took, a.after)
		}
	}
	if memory.Objects > 0 {
		from = slices.Insert(from, 0, memory)
	}
	return from
}

// holdWhole holds what is in memory, and verifies it.
func (s *Store) holdWhole(ctx context.Context, names [][]byte, bytes uint64) (*Hold, error) {
	h, err := s.holdNames(names, false)
	for i := range h.held {
		at := h.held[i].Location
		broken := ctx.Err()
		switch {
		case broken != nil:
		case bytes != 0 && at.Bytes != bytes:
			broken = fmt.Errorf("an object of %d bytes, %d were asked for", at.Bytes, bytes)
		default:
			broken = s.owned.heap.Check(at.Offset, at.Bytes, at.Checksum)
		}
		if broken != nil {
			h.drop(i, errors.Is(broken, ErrTorn))
			return h, fmt.Errorf("%w: %w", ErrMissing, broken)
		}
		h.Places = append(h.Places, Place{Offset: at.Offset, Bytes: at.Bytes})
	}
	return h, err
}

// Pin holds what is here of a run, also behind what is not, without a look at the bytes: they
// are not read, only not to be evicted.
func (s *Store) Pin(r Run) (*Hold, error) {
	names, err := s.namesOf(r)
	if err != nil {
		return &Hold{store: s}, err
	}
	return s.holdNames(names, true)
}

// holdNames holds objects from the first on, up to one that is not here, unless it skips those.
func (s *Store) holdNames(names [][]byte, skips bool) (h *Hold, err error) {
	h = &Hold{store: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.server == nil:
		return h, fmt.Errorf("%w: no objects are kept here", ErrRefused)
	case s.closed:
		return h, ErrClosed
	}
	s.noticeSleep()
	now := s.now()
	if skips {
		names = slices.DeleteFunc(names, func(name []byte) bool { return !s.server.Has(now, name) })
	}
	h.held, err = s.server.Hold(now, names)
	return h, err
}

// drop lets the objects go from one on, which may be broken.
func (h *Hold) drop(from int, broken bool) {
	rest := h.held[from:]
	h.held = h.held[:from]
	h.store.step(func(now, _ kv.Instant) (effects []protocol.Effect) {
		for i := range rest {
			effects = append(effects, h.store.server.Unhold(now, rest[i], broken && i == 0)...)
		}
		return effects
	})
	if broken {
		h.store.counters.torn.Add(1)
	}
}

// Release lets go of all of it. The caller may not read there any more. Once more is nothing.
func (h *Hold) Release() {
	h.release.Do(func() {
		if len(h.held) > 0 {
			h.drop(0, false)
		}
	})
}

// Touch notes that a run was used, as far as it lies here: what is at its end is evicted
// first, so that no object stays without those before it.
func (s *Store) Touch(r Run) error {
	names, err := s.namesOf(r)
	if err != nil {
		return err
	}
	s.touch(names)
	s.cold.used(names)
	return nil
}

func (s *Store) touch(names [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Touch(s.now(), names)
	}
}

// SetLastCopy says which copies of a run that lie here stand in for what they are copies of, as
// no owner has that any more: those do not leave before everything else.
func (s *Store) SetLastCopy(r Run, sole []bool) error {
	names, err := s.namesOf(r)
	if err == nil && len(sole) != len(names) {
		err = fmt.Errorf("%w: %d objects, and %d words about them", ErrRefused, len(names), len(sole))
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.SetLastCopy(s.now(), names, r.Payer, sole)
	}
	return nil
}

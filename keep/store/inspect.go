package store

import (
	"context"
	"errors"
	"sync/atomic"

	"meridian/keep/store/protocol"
)

// Availability is what an owner has of an object: in which tier it lies, nearest first, "" for
// nowhere.
type Availability = protocol.Availability

// Memory is how the first tier of an owner is called.
const Memory = protocol.Memory

// Pins is what came of pinning.
type Pins = protocol.Pins

// see fills in which objects that are not in memory lie in a tier here. Effects are the
// answer about memory.
func (c *cold) see(names [][]byte, effects []protocol.Effect) {
	if c == nil {
		return
	}
	for _, e := range effects {
		send, _ := e.(protocol.Send)
		seen, is := send.Message.(*protocol.Inspected)
		if !is || len(seen.Objects) != len(names) {
			continue
		}
		for _, b := range c.behind {
			for i, has := range b.Has(names) {
				if has && seen.Objects[i].Tier == "" {
					seen.Objects[i].Tier = b.Name()
				}
			}
		}
	}
}

// Inspect says what one owner has of a run, and where. It counts as no use, and keeps nothing
// there: the next moment it may be gone.
func (s *Store) Inspect(ctx context.Context, name string, r Run) (seen []Availability, err error) {
	err = s.inPieces(ctx, name, r, func(names [][]byte) protocol.Message { return &protocol.Inspect{Names: names} }, func(names [][]byte, m protocol.Message) bool {
		some, is := m.(*protocol.Inspected)
		if is = is && len(some.Objects) == len(names); is {
			seen = append(seen, some.Objects...)
		}
		return is
	})
	return seen, err
}

// SetPinned keeps objects of a run that lie in one owner's memory from being evicted, or
// lets them be again. An owner pins no more than a part of its memory: the rest of the run
// is refused, and told so.
func (s *Store) SetPinned(ctx context.Context, name string, r Run, pinned bool) (all Pins, err error) {
	err = s.inPieces(ctx, name, r, func(names [][]byte) protocol.Message { return &protocol.Pin{Names: names, On: pinned} }, func(_ [][]byte, m protocol.Message) bool {
		pins, is := m.(*protocol.Pins)
		if is {
			pins.Done, pins.Missing, pins.Refused = all.Done+pins.Done, all.Missing+pins.Missing, all.Refused+pins.Refused
			all = *pins
		}
		return is
	})
	return all, err
}

// inPieces asks one owner about a run, as much of it at a time as fits a message.
func (s *Store) inPieces(ctx context.Context, name string, r Run, question func([][]byte) protocol.Message, take func([][]byte, protocol.Message) bool) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	o, err := s.owner(name)
	if err != nil {
		return err
	}
	names, err := s.namesOf(r)
	if err != nil {
		return err
	}
	for len(names) > 0 {
		n := min(len(names), protocol.MaxKeys)
		answer, err := s.askPatiently(ctx, o.peer(), question(names[:n]))
		if err != nil {
			return err
		}
		if !take(names[:n], answer) {
			return unexpected(o.peer(), answer)
		}
		names = names[n:]
	}
	return nil
}

// Discard takes a run away from one owner, from its memory and from its tiers, the last
// object first: a reader finds no object meanwhile without those before it. What is
// being read stays until it has been. Dropped is how many were there.
func (s *Store) Discard(ctx context.Context, name string, r Run) (dropped int, err error) {
	seen, err := s.Inspect(ctx, name, r)
	if err != nil {
		return 0, err
	}
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	o, err := s.owner(name)
	if err != nil {
		return 0, err
	}
	names, err := s.namesOf(r)
	if err != nil {
		return 0, err
	}
	for end := len(names); end > 0 && err == nil; end -= min(end, discardedTogether) {
		first := max(0, end-discardedTogether)
		problems := make([]error, end-first)
		var gone atomic.Int64
		each(end-first, func(i int) {
			if seen[first+i].Tier == "" {
				return
			}
			_, err := s.askPatiently(ctx, o.peer(), &protocol.Remove{Name: names[first+i]})
			if err == nil || errors.Is(err, ErrMissing) { // it was in a tier alone, or has left
				gone.Add(1)
				return
			}
			problems[i] = err
		})
		dropped += int(gone.Load())
		err = errors.Join(problems...)
	}
	return dropped, err
}

// discardedTogether is how many objects an owner is asked at a time to let go.
const discardedTogether = 32

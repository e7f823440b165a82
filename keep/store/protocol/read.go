package protocol

import (
	"errors"
	"fmt"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// onGet leases an object to its reader and has it delivered.
func (s *Server) onGet(now kv.Instant, from kv.Member, request uint64, m *Get) []Effect {
	refuse := func(err error) []Effect { return s.refuse(from, request, err) }
	if len(s.reads) >= s.options.MaxReads {
		return refuse(fmt.Errorf("%w: %d objects are being read from %s; try again", owner.ErrOverloaded, len(s.reads), s.options.Self.Name))
	}
	if err := s.admit(from, s.options.MaxReads, 0); err != nil {
		return refuse(err)
	}
	span := within(millis(m.PatienceMs), s.options.ReadTimeout)
	// The owner's own transfer is the reader, and Delivered ends the lease.
	at, id, err := s.objects.Lease(now, m.Name)
	if err != nil {
		s.dismiss(from, 0)
		return refuse(err)
	}
	landing := m.Landing.Length >= at.Bytes
	inline := from != s.options.Self && (at.Bytes <= SmallValue || at.Bytes <= MaxInline && !landing)
	if !inline && !landing {
		s.objects.Release(id)
		s.dismiss(from, 0)
		return refuse(fmt.Errorf("%w: %d bytes for an object of %d", ErrTooSmall, m.Landing.Length, at.Bytes))
	}
	s.reads[id] = reading{from, now + span}
	return []Effect{Deliver{id, from, request, at, inline, m.Landing, span}}
}

// reading is an object on its way out.
type reading struct {
	to    kv.Member
	until kv.Instant // its delivery is given up then
}

// Delivered says that nothing reads an object for a Get any more. An error is told
// to the reader; one that says that the object itself is broken ends it.
func (s *Server) Delivered(now kv.Instant, d Deliver, err error) []Effect {
	r, is := s.reads[d.Read]
	if is {
		s.dismiss(r.to, 0)
	}
	delete(s.reads, d.Read)
	if is && err != nil && now >= r.until {
		s.objects.Overdue(d.Read)
	} else {
		s.objects.Release(d.Read)
	}
	if err == nil {
		return s.tellDrops(now)
	}
	if errors.Is(err, arena.ErrTorn) {
		s.objects.Distrust(d.Location)
		err = fmt.Errorf("%w: %w", owner.ErrMissing, err)
	}
	return append(s.refuse(d.To, d.Request, err), s.tellDrops(now)...)
}

// look has an object looked at which a reader calls broken. Its word is not taken: bytes
// may have changed on their way to it, or in its own memory.
func (s *Server) look(now kv.Instant, from kv.Member, request uint64, m *Remove) []Effect {
	if !s.objects.HasSum(m.Name, m.Checksum) {
		return s.refuse(from, request, owner.ErrMissing)
	}
	if len(s.reads) >= s.options.MaxReads {
		return s.refuse(from, request, owner.ErrOverloaded)
	}
	if err := s.admit(from, s.options.MaxReads, 0); err != nil {
		return s.refuse(from, request, err)
	}
	at, id, err := s.objects.Lease(now, m.Name)
	if err != nil {
		s.dismiss(from, 0)
		return s.refuse(from, request, err)
	}
	s.reads[id] = reading{from, kv.Never}
	return []Effect{Verify{id, from, request, at}}
}

// Looked says what an object was found to be: nil is whole.
func (s *Server) Looked(now kv.Instant, l Verify, err error) []Effect {
	if err == nil {
		err = errWhole
	}
	return s.Delivered(now, Deliver{Read: l.Read, To: l.To, Request: l.Request, Location: l.Location}, err)
}

var errWhole = fmt.Errorf("%w: the object is whole where it lies", ErrRefused)

// waiting is a Locate that waits for its object.
type waiting struct {
	from    kv.Member
	request uint64
	name    []byte
	hash    uint64
	until   kv.Instant
}

// maxWaiting bounds how many do. One peer has a quarter of it at most; what is beyond is
// answered as it stands.
const maxWaiting = 4096

// locate says where an object lies, or that it is not ready.
func (s *Server) locate(now kv.Instant, name []byte) (owner.Location, error) {
	at, err := s.objects.Locate(now, name)
	if err != nil && s.objects.Writing(name) {
		err = errNotReady
	}
	return at, err
}

func (s *Server) onLocate(now kv.Instant, from kv.Member, request uint64, m *Locate) []Effect {
	at, err := s.locate(now, m.Name)
	hash := arena.HashKey(m.Name)
	room := len(s.waiting) < maxWaiting && (from == s.options.Self || s.shares[from].locates < part(maxWaiting))
	if err != nil && m.WaitMs > 0 && room && s.byKey[hash] != nil {
		s.waiting = append(s.waiting, waiting{from, request, m.Name, hash, now + millis(m.WaitMs)})
		s.charge(from, share{locates: 1})
		return nil
	}
	return []Effect{located(from, request, at, err)}
}

func located(to kv.Member, request uint64, at owner.Location, err error) Effect {
	if err != nil {
		return Send{to, request, &Reply{problemOf(err)}}
	}
	return Send{to, request, &Location{at}}
}

// tickWaiting answers those whose object is ready, or will not be in time.
func (s *Server) tickWaiting(now kv.Instant) (effects []Effect) {
	kept := s.waiting[:0]
	for _, l := range s.waiting {
		if now < l.until && (!s.Answers(now) || s.byKey[l.hash] != nil) {
			kept = append(kept, l)
			continue
		}
		s.charge(l.from, share{locates: -1})
		at, err := owner.Location{}, master.ErrSilent
		if s.Answers(now) {
			at, err = s.locate(now, l.name)
		}
		effects = append(effects, located(l.from, l.request, at, err))
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
	return effects
}

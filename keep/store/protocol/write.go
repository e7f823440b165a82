package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// write is an object on its way in.
type write struct {
	number  uint64
	plan    owner.Plan
	stage   stage
	from    kv.Member // whose it is; the owner itself for what a producer wrote
	request uint64
	asked   bool   // request waits for an answer
	value   []byte // of a Put
	source  Span   // of a PutFrom
	adopted bool   // a producer wrote it
	claimed bool   // the master has given this owner the key
	serial  uint64 // of the last claim; 0 for none
	again   kv.Instant
	until   kv.Instant // of this stage
	span    kv.Instant // how long its client may write
	grant   kv.ID
	sum     uint64
	summed  bool   // its writer said which sum it must have:
	stated  uint64 // this one
	failed  error  // it ends, as soon as nothing can write to it
}

// stage is how far a write is.
type stage uint8

const (
	claiming stage = iota // the master was asked for the key
	granting              // the writer's grant is being made
	writing               // the client writes
	revoking              // the grant is being taken back
	fetching              // the owner reads it from its client's memory
	sealing               // copied, if the owner has the bytes, and summed
	sealed                // complete; waits for a lease
)

// wish is what a client wants to write.
type wish struct {
	put      owner.Put
	value    []byte
	source   Span
	patience kv.Instant
	span     kv.Instant
}

func put(m *Put) wish {
	return wish{
		put:   owner.Put{Key: m.Name, Bytes: uint64(len(m.Value)), PageSize: m.PageSize, Pinned: m.Pinned, Priority: m.Priority},
		value: m.Value, patience: millis(m.PatienceMs),
	}
}

func putFrom(m *PutFrom) wish {
	return wish{
		put:    owner.Put{Key: m.Name, Bytes: m.Source.Length, PageSize: m.PageSize, Pinned: m.Pinned, Priority: m.Priority},
		source: m.Source, patience: millis(m.PatienceMs),
	}
}

func open(m *Open) wish {
	return wish{
		put:      owner.Put{Key: m.Name, Bytes: m.Bytes, PageSize: m.PageSize, Pinned: m.Pinned, Priority: m.Priority, Tenant: m.Payer},
		patience: millis(m.PatienceMs), span: millis(m.WriteMs),
	}
}

// millis is a span that another process named, within reason.
func millis(ms uint64) kv.Instant { return kv.Instant(min(ms, 3600_000)) * kv.Millisecond }

// begin reserves an object and asks the master for its key.
func (s *Server) begin(now kv.Instant, from kv.Member, request uint64, o wish) []Effect {
	refuse := func(err error) []Effect { return s.refuse(from, request, err) }
	if len(s.writes)+len(s.chores.requests) >= s.options.MaxWrites || s.values+len(o.value) > s.options.MaxValues {
		return refuse(fmt.Errorf("%w: %d objects are being written to %s; try again", owner.ErrOverloaded, len(s.writes), s.options.Self.Name))
	}
	if err := nameOK(o.put.Key); err != nil {
		return refuse(err)
	}
	if size := o.put.PageSize; size != 0 && (size < arena.Segment || size&(size-1) != 0) {
		return refuse(fmt.Errorf("%w: pages of %d bytes: a power of two, at least %d", ErrRefused, size, arena.Segment))
	}
	if err := s.admit(from, s.options.MaxWrites, len(o.value)); err != nil {
		return refuse(err)
	}
	if o.put.Tenant == "" {
		o.put.Tenant = AgentTenant(from.Name)
	}
	until := now + within(o.patience, s.options.WriteTimeout)
	reserve := func(now kv.Instant) (effects []Effect, over bool) {
		plan, err := s.objects.Reserve(now, o.put)
		switch late := now >= until; {
		case errors.Is(err, owner.ErrMakingRoom) && !late:
			return nil, false
		case errors.Is(err, owner.ErrMakingRoom):
			err = fmt.Errorf("%w: its time is over: %w", ErrUnavailable, err)
		}
		if err != nil {
			s.dismiss(from, len(o.value))
			return refuse(err), true
		}
		s.next++
		w := &write{
			number: s.next, plan: plan, from: from, request: request, asked: true, value: o.value, source: o.source,
			until: until, span: within(o.span, s.options.WriteTimeout),
		}
		s.writes[w.number], s.byKey[plan.KeyHash] = w, w
		return s.claim(now, w), true
	}
	waited := len(s.chores.requests)
	effects := s.request(now, reserve)
	if len(s.chores.requests) > waited {
		o.value = bytes.Clone(o.value) // it is lent for this event
	}
	return effects
}

// Keep is called after Receive by who lends the value of a Put for that call, and for
// what a Seal asks for: a value that waits for its key is copied.
func (s *Server) Keep(m *Put) {
	w := s.byKey[arena.HashKey(m.Name)]
	if w != nil && w.stage == claiming && len(m.Value) > 0 && len(w.value) > 0 && &w.value[0] == &m.Value[0] {
		w.value = bytes.Clone(w.value)
	}
}

func within(asked, most kv.Instant) kv.Instant {
	if asked <= 0 {
		return most
	}
	return min(asked, most)
}

// adopt claims the key of an object that a producer wrote.
func (s *Server) adopt(now kv.Instant, hash uint64) []Effect {
	if s.byKey[hash] != nil {
		return nil
	}
	s.next++
	w := &write{number: s.next, plan: owner.Plan{KeyHash: hash}, from: s.options.Self, adopted: true, until: now + s.options.WriteTimeout}
	s.writes[w.number], s.byKey[hash] = w, w
	s.charge(w.from, share{requests: 1})
	return s.claim(now, w)
}

// claim asks the master for the key, or asks again.
func (s *Server) claim(now kv.Instant, w *write) []Effect {
	if !s.Answers(now) {
		return nil // Tick comes back to it
	}
	w.again, w.serial = now+again, s.member.Serial()
	return []Effect{Send{s.master, w.number, &Claim{master.Claim{
		Owner: s.member.Owner, Incarnation: s.member.Incarnation, Term: s.member.Term(), Serial: w.serial, Oldest: s.oldest(), Hash: w.plan.KeyHash,
	}}}}
}

// oldest is the first claim that still counts: of those before, the master need
// not hear any more.
func (s *Server) oldest() uint64 {
	oldest := s.member.NextSerial()
	for _, w := range s.writes {
		if w.stage == claiming && w.serial > 0 {
			oldest = min(oldest, w.serial)
		}
	}
	return oldest
}

func (s *Server) onClaimed(now kv.Instant, from kv.Member, number uint64, m *Claimed) []Effect {
	w := s.writes[number]
	if w == nil || w.stage != claiming || from != s.master || m.Term != s.member.Term() {
		return nil
	}
	switch err := m.Problem.Err(); {
	case errors.Is(err, master.ErrTaken):
		return s.end(w, err) // whether it has it, or is about to, that owner knows
	case errors.Is(err, master.ErrCrowded):
		return s.end(w, fmt.Errorf("%w: %w", owner.ErrFull, err))
	case err != nil || !s.Answers(now):
		return nil // not yet: it is asked again
	}
	w.claimed = true
	switch {
	case w.failed != nil:
		return s.end(w, w.failed)
	case w.adopted:
		if plan, unsummed := s.objects.Unsummed(w.plan.KeyHash); unsummed {
			w.plan, w.adopted = plan, false // from now on it is a write like any
			return s.seal(w)
		}
		s.objects.Admit(w.plan.KeyHash)
		s.forget(w)
		return nil
	case w.value != nil:
		return s.seal(w)
	case w.source.Length > 0:
		w.stage = fetching
		return []Effect{Fetch{w.number, w.from, w.plan, w.source, w.until - now}}
	}
	w.stage = granting
	return []Effect{Grant{w.number, w.from, w.plan.Offset, w.plan.Bytes, w.span}}
}

// Granted says that a writer's grant is made, or why it is not.
func (s *Server) Granted(now kv.Instant, number uint64, span Span, err error) []Effect {
	w := s.writes[number]
	if w == nil || w.stage != granting {
		return nil
	}
	if err != nil {
		w.stage = claiming // nothing was opened
		return s.end(w, err)
	}
	w.grant, w.stage = span.Grant, writing
	if w.failed != nil {
		return s.revoke(w)
	}
	return s.letWrite(now, w, span)
}

// letWrite tells the client of an Open where to write.
func (s *Server) letWrite(now kv.Instant, w *write, span Span) []Effect {
	w.stage, w.until = writing, now+w.span
	return s.answer(w, &Plan{Plan: w.plan, Span: span})
}

// answer answers the request that waits, if one does.
func (s *Server) answer(w *write, m Message) []Effect {
	if !w.asked {
		return nil
	}
	w.asked = false
	return []Effect{Send{w.from, w.request, m}}
}

func (s *Server) onCommit(from kv.Member, request uint64, m *Commit) []Effect {
	w := s.byKey[m.KeyHash]
	if w == nil || w.from != from || w.plan.Header != m.Header || w.plan.Epoch != m.Epoch || w.stage != writing || w.failed != nil {
		return []Effect{Send{from, request, &Reply{problemOf(fmt.Errorf("%w: nothing of it is being written", owner.ErrStale))}}}
	}
	w.request, w.asked, w.until = request, true, kv.Never
	w.summed, w.stated = m.Summed, m.Checksum
	if m.Abort {
		w.failed = errAborted
	}
	return s.revoke(w)
}

// errAborted ends a write as its client wished.
var errAborted = errors.New("store: aborted")

// revoke takes the writer's grant back.
func (s *Server) revoke(w *write) []Effect {
	w.stage = revoking
	return []Effect{Revoke{w.number, w.grant}}
}

// Revoked says that nothing writes under a grant any more. With an error that is
// not certain, and it is tried again.
func (s *Server) Revoked(now kv.Instant, number uint64, err error) []Effect {
	w := s.writes[number]
	switch {
	case w == nil || w.stage != revoking:
		return nil
	case err != nil:
		w.again = now + kv.Second
		return nil
	case w.failed != nil:
		return s.abort(w)
	}
	return s.seal(w)
}

// Fetched says that nothing of the client's is copied any more: all of it lies here and
// has this checksum, or err.
func (s *Server) Fetched(now kv.Instant, number, checksum uint64, err error) []Effect {
	w := s.writes[number]
	if w == nil || w.stage != fetching {
		return nil
	}
	if err != nil {
		w.stage = claiming // nothing writes there
		return s.end(w, err)
	}
	w.stage = sealing
	return s.Sealed(now, number, checksum)
}

func (s *Server) seal(w *write) []Effect {
	w.stage, w.until = sealing, kv.Never
	return []Effect{Seal{w.number, w.plan, w.value}}
}

// Sealed says that the bytes are complete and summed.
func (s *Server) Sealed(now kv.Instant, number, checksum uint64) []Effect {
	w := s.writes[number]
	if w == nil || w.stage != sealing {
		return nil
	}
	if w.failed == nil && w.summed && w.stated != checksum {
		w.failed = fmt.Errorf("%w: what lies at %s is not what was written", arena.ErrTorn, s.options.Self.Name)
	}
	if w.failed != nil {
		return s.abort(w)
	}
	w.stage, w.sum, w.until = sealed, checksum, now+s.options.WriteTimeout
	return append(s.commit(now, w), s.tickWaiting(now)...)
}

// commit lets an object be found, under a lease: the key is still this owner's.
func (s *Server) commit(now kv.Instant, w *write) []Effect {
	if !s.Answers(now) {
		return nil
	}
	err := s.objects.Commit(now, w.plan, w.sum)
	s.forget(w)
	return s.answer(w, &Reply{problemOf(err)})
}

// end lets a write fail, as soon as nothing can write to its bytes.
func (s *Server) end(w *write, err error) []Effect {
	if w.failed == nil {
		w.failed = err
	}
	effects := s.answer(w, &Reply{problemOf(w.failed)})
	switch w.stage {
	case claiming, sealed:
		return append(effects, s.abort(w)...)
	case writing:
		return append(effects, s.revoke(w)...)
	}
	return effects // granting, revoking, fetching and sealing come to an end by themselves
}

// abort gives a write's room back, and its key.
func (s *Server) abort(w *write) []Effect {
	switch {
	case w.adopted:
		s.objects.RemoveHash(w.plan.KeyHash)
	case w.failed == errAborted: //nolint:errorlint // this one, not one like it
		_ = s.objects.Abort(w.plan)
	default:
		_ = s.objects.Reclaim(w.plan)
	}
	s.forget(w)
	if w.serial > 0 {
		s.free(w.plan.KeyHash)
	}
	if w.failed == errAborted { //nolint:errorlint // as above
		return s.answer(w, &Reply{})
	}
	return s.answer(w, &Reply{problemOf(w.failed)})
}

func (s *Server) forget(w *write) {
	delete(s.writes, w.number)
	s.dismiss(w.from, len(w.value))
	if s.byKey[w.plan.KeyHash] == w {
		delete(s.byKey, w.plan.KeyHash)
	}
}

// tickWrite goes on with a write that waits.
func (s *Server) tickWrite(now kv.Instant, w *write) []Effect {
	switch {
	case w.stage == revoking && w.again != 0 && now >= w.again:
		w.again = 0
		return s.revoke(w)
	case now >= w.until && w.failed == nil:
		return s.end(w, fmt.Errorf("%w: its time is over", ErrUnavailable))
	case w.stage == claiming && now >= w.again:
		return s.claim(now, w)
	case w.stage == sealed:
		return s.commit(now, w)
	}
	return nil
}

// byNumber is all writes, in the order in which they began: a world from a seed
// must go the same way twice.
func (s *Server) byNumber() []*write {
	all := make([]*write, 0, len(s.writes))
	for _, number := range slices.Sorted(maps.Keys(s.writes)) {
		all = append(all, s.writes[number])
	}
	return all
}

package protocol

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// ServerOptions of an owner. Zero values mean the defaults.
type ServerOptions struct {
	Self kv.Member
	// WriteTimeout is the longest that a client of Open may take; default 30 s.
	WriteTimeout kv.Instant
	// ReadTimeout is the longest that a delivery may take; default 30 s.
	ReadTimeout kv.Instant
	// MaxWrites and MaxReads bound what goes on at a time; default 4096 each. One
	// peer has a quarter of it at most. A writer or a reader beyond is told that the
	// owner is overloaded.
	MaxWrites, MaxReads int
	// MaxValues bounds the bytes of small values that wait for their keys; default
	// 64 MiB. One peer has a quarter of it at most.
	MaxValues int
}

// Server is an owner's side of the conversation.
type Server struct {
	options ServerOptions
	objects *owner.Owner
	member  master.Member
	master  kv.Member

	next    uint64            // number of the last write or word to the master
	writes  map[uint64]*write // by number
	byKey   map[uint64]*write // by the hash of its key
	reads   map[owner.LeaseID]reading
	holds   int // leases of Hold
	values  int // bytes of small values in writes
	shares  map[kv.Member]share
	waiting []waiting // for an object to become ready
	removes []removal // that the master has not heard of
	drops   []Drop    // not yet told
	chores  chores
	telling struct { // of drops
		request uint64
		count   int // of the first drops
		again   kv.Instant
	}
}

// NewServer lets an owner speak. It is silent until it has a lease.
func NewServer(o ServerOptions, objects *owner.Owner) *Server {
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*kv.Second)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 30*kv.Second)
	o.MaxWrites, o.MaxReads, o.MaxValues = cmp.Or(o.MaxWrites, 4096), cmp.Or(o.MaxReads, 4096), cmp.Or(o.MaxValues, 64<<20)
	return &Server{
		options: o, objects: objects, member: master.Member{Owner: o.Self.Name, Incarnation: o.Self.Incarnation},
		writes: make(map[uint64]*write), byKey: make(map[uint64]*write), reads: make(map[owner.LeaseID]reading), shares: make(map[kv.Member]share),
	}
}

// Elected says who the master is.
func (s *Server) Elected(now kv.Instant, who kv.Member, term uint64) []Effect {
	if term < s.member.Term() {
		return nil
	}
	if term > s.member.Term() {
		s.forgetTerm()
	}
	s.master = who
	s.member.Elected(term)
	return s.Tick(now)
}

// forgetTerm makes everything that was said to a master of an older term be said
// again.
func (s *Server) forgetTerm() {
	s.telling.count, s.telling.again, s.chores.order = 0, 0, nil
	for _, w := range s.writes {
		if w.stage == claiming {
			w.again = 0
		}
	}
}

// Answers reports whether the owner may serve.
func (s *Server) Answers(now kv.Instant) bool { return s.member.Answers(now) }

// Slept says that the machine was suspended, or that its clock stood still: the
// lease may be over.
func (s *Server) Slept() { s.member.Slept() }

// Receive takes a message from a client or from the master.
func (s *Server) Receive(now kv.Instant, from kv.Member, request uint64, m Message) []Effect {
	var effects []Effect
	switch m := m.(type) {
	case *Answer:
		effects = s.onAnswer(now, from, m)
	case *Claimed:
		effects = s.onClaimed(now, from, request, m)
	case *DroppedAck:
		effects = s.onHeard(from, request, m)
	case *Describe:
		effects = []Effect{Send{from, request, s.describe(now)}}
	case *Put, *PutFrom, *Open, *Commit, *Get, *Remove, *Locate, *Has, *List, *Evict, *Inspect, *Pin:
		if !s.Answers(now) {
			return []Effect{Send{from, request, &Reply{problemOf(fmt.Errorf("%w: %s waits for the master", master.ErrSilent, s.options.Self.Name))}}}
		}
		effects = s.serve(now, from, request, m)
	}
	return append(append(effects, s.tellDrops(now)...), s.goOn()...)
}

func (s *Server) serve(now kv.Instant, from kv.Member, request uint64, m Message) []Effect {
	answer := func(m Message) []Effect { return []Effect{Send{from, request, m}} }
	switch m := m.(type) {
	case *Put:
		return s.begin(now, from, request, put(m))
	case *PutFrom:
		return s.begin(now, from, request, putFrom(m))
	case *Open:
		return s.begin(now, from, request, open(m))
	case *Commit:
		return s.onCommit(from, request, m)
	case *Get:
		return s.onGet(now, from, request, m)
	case *Remove:
		return s.onRemove(now, from, request, m)
	case *Locate:
		return s.onLocate(now, from, request, m)
	case *Has:
		present := &Present{Is: make([]bool, len(m.Names))}
		for i, name := range m.Names {
			present.Is[i] = s.objects.Has(name)
		}
		return answer(present)
	case *List:
		return answer(s.list(now, m))
	case *Inspect:
		return answer(s.inspect(now, m))
	case *Pin:
		return answer(s.pin(m))
	case *Evict:
		return s.evict(now, from, request, m)
	}
	return nil
}

func (s *Server) describe(now kv.Instant) *Description {
	return &Description{Stats: s.objects.Stats(), Answers: s.Answers(now), Term: s.member.Term(), Master: s.master.Name}
}

const (
	// maxListed bounds the work of one List: what is passed over counts, too.
	maxListed = 2 << 10
	// maxListing bounds the bytes of its answer.
	maxListing = 1 << 20
)

func (s *Server) list(now kv.Instant, m *List) *Listing {
	listing, seen, size := &Listing{}, 0, 0
	most := int(min(cmp.Or(m.Most, MaxKeys), MaxKeys))
	listing.Next = s.objects.List(now, m.After, func(o owner.Object) bool {
		tenant, key, err := SplitName(o.Name)
		if err == nil && (m.AllTenants || tenant == m.Tenant) && strings.HasPrefix(key, m.Prefix) {
			listing.Objects = append(listing.Objects, o)
			size += len(o.Name)
		}
		seen++
		return len(listing.Objects) < most && size < maxListing && seen < maxListed
	})
	return listing
}

// Tick lets time pass: leases are renewed, writers that take too long are stopped,
// what producers left is taken in.
func (s *Server) Tick(now kv.Instant) []Effect {
	var effects []Effect
	if s.master != (kv.Member{}) {
		if r, due := s.member.Tick(now); due {
			r.Oldest = s.oldest()
			effects = append(effects, Send{s.master, 0, &Renew{r}})
		}
	}
	s.objects.Ingest(now, maxIngested)
	s.objects.Drain(now)
	for _, hash := range s.objects.Arrived() {
		effects = append(effects, s.adopt(now, hash)...)
	}
	for _, w := range s.byNumber() {
		effects = append(effects, s.tickWrite(now, w)...)
	}
	effects = append(effects, s.tickWaiting(now)...)
	effects = append(effects, s.removed(func(r removal) bool { return now >= r.until })...)
	return append(effects, s.tellDrops(now)...)
}

// maxIngested bounds how many announcements one Tick takes in.
const maxIngested = 1024

// Scan looks for what no message told of. It looks at every header, so it is not
// for every Tick.
func (s *Server) Scan(now kv.Instant) []Effect {
	s.objects.Scan(now)
	return s.Tick(now)
}

// onAnswer takes what the master says to Renew.
func (s *Server) onAnswer(now kv.Instant, from kv.Member, m *Answer) []Effect {
	if from != s.master {
		return nil
	}
	before := s.member.Term()
	order := s.member.Heard(m.Answer)
	if s.member.Term() != before {
		s.forgetTerm() // who has that term the directory will say
	}
	var effects []Effect
	switch {
	case order.Tell:
		effects = s.command(now, s.tell(order.Seq))
	case order.Drop:
		s.chores.order = nil
		effects = s.obey(now, order)
	}
	return append(effects, s.tickWaiting(now)...)
}

// free notes that a key which was claimed is not this owner's any more.
func (s *Server) free(hash uint64) { s.drops = append(s.drops, Drop{hash, s.member.Serial()}) }

// tellDrops tells the master which keys are free again, until it has heard.
func (s *Server) tellDrops(now kv.Instant) []Effect {
	s.collectDrops()
	if len(s.drops) == 0 || now < s.telling.again || !s.Answers(now) {
		return nil
	}
	if s.telling.count == 0 {
		s.next++
		s.telling.request, s.telling.count = s.next, min(len(s.drops), maxTold)
	}
	s.telling.again = now + again
	drops := s.drops[:s.telling.count:s.telling.count]
	return []Effect{Send{s.master, s.telling.request, &Dropped{
		Owner: s.member.Owner, Incarnation: s.member.Incarnation, Term: s.member.Term(), Oldest: s.oldest(), Drops: drops,
	}}}
}

// again is how long the owner waits for the master's answer before it repeats itself.
const again = 100 * kv.Millisecond

func (s *Server) onHeard(from kv.Member, request uint64, m *DroppedAck) []Effect {
	if from != s.master || m.Term != s.member.Term() || s.telling.count == 0 || request != s.telling.request {
		return nil
	}
	heard := s.drops[s.telling.count-1].Serial
	s.drops = s.drops[s.telling.count:]
	s.telling.count, s.telling.again = 0, 0
	return s.removed(func(r removal) bool { return r.serial <= heard })
}

// removal is a Remove that is done, and is answered when the master has heard of it:
// its client may put the key anew, at another owner.
type removal struct {
	from    kv.Member
	request uint64
	serial  uint64
	until   kv.Instant
}

const (
	// maxRemovals bounds how many wait for that, removalPatience for how long.
	maxRemovals     = 4096
	removalPatience = kv.Second
)

func (s *Server) onRemove(now kv.Instant, from kv.Member, request uint64, m *Remove) []Effect {
	if m.Checksum != 0 {
		return s.look(now, from, request, m)
	}
	err := s.objects.Remove(m.Name)
	if err != nil || len(s.removes) >= maxRemovals {
		return []Effect{Send{from, request, &Reply{problemOf(err)}}}
	}
	s.collectDrops()
	s.removes = append(s.removes, removal{from, request, s.drops[len(s.drops)-1].Serial, now + removalPatience})
	return nil
}

// removed answers those for which it is time.
func (s *Server) removed(over func(removal) bool) (effects []Effect) {
	s.removes = slices.DeleteFunc(s.removes, func(r removal) bool {
		if !over(r) {
			return false
		}
		effects = append(effects, Send{r.from, r.request, &Reply{}})
		return true
	})
	return effects
}

// collectDrops takes over which objects cannot be found any more.
func (s *Server) collectDrops() {
	for _, hash := range s.objects.Gone() {
		s.free(hash)
	}
}

// nameOK bounds what a client may call an object.
func nameOK(name []byte) error {
	if len(name) == 0 || len(name) > arena.MaxKey {
		return fmt.Errorf("%w: a name of %d bytes", ErrName, len(name))
	}
	return nil
}

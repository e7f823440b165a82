// Package memdir is a directory in this process: for tests, and for a
// simulator, which brings its own clock and decides who is cut off when.
//
//	Store ── one directory: records, leases, a bounded history
//	  ├── Client ── a directory.Directory of its own, with its own outages
//	  └── Client
//
// The store has no goroutine. Leases expire on the clock's timer, or when the
// next caller comes by later than their time.
package memdir

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/member/directory"
)

// DefaultHistory is how many changes a store remembers for watchers that resume.
const DefaultHistory = 4096

// Options configures New.
type Options struct {
	Clock   directory.Clock // nil: directory.WallClock
	History int             // changes remembered; 0: DefaultHistory
}

// Store is the directory itself.
type Store struct {
	clock   directory.Clock
	history int

	mu        sync.Mutex // protects what follows; held across no call
	stopped   bool
	streams   int // counts what broke every stream: a stop, a wipe
	revision  directory.Revision
	records   map[string]directory.Record
	leases    map[directory.LeaseID]*lease
	lastLease directory.LeaseID
	events    []directory.Event  // the history, oldest first
	forgotten directory.Revision // everything up to here has left the history
	changed   chan struct{}      // closed when watchers should look again
	stopTimer func() bool        // of the next expiry
}

type lease struct {
	ttl     time.Duration
	expires time.Time
	keys    map[string]struct{}
}

// New makes an empty store. Its first revision is 1, as 0 means none.
func New(o Options) *Store {
	o.Clock = cmp.Or[directory.Clock](o.Clock, directory.WallClock{})
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	s := &Store{clock: o.Clock, history: o.History, changed: make(chan struct{})}
	s.erase()
	return s
}

// Stop takes the directory away from all clients. Time does not count against
// leases while it is away.
func (s *Store) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.stopped = true
	s.streams++
	s.announce()
}

// Start brings it back. Every lease gets its whole time again: the directory
// cannot know who renewed in vain.
func (s *Store) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = false
	for _, l := range s.leases {
		l.expires = s.clock.Now().Add(l.ttl)
	}
	s.arm()
	s.announce()
}

// Wipe loses everything the store held, as if its disk were replaced.
func (s *Store) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.streams++
	s.announce()
}

// Compact forgets the history, so that a watcher cannot resume from it.
func (s *Store) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events, s.forgotten = nil, s.revision
}

// erase runs under the lock.
func (s *Store) erase() {
	s.revision, s.forgotten, s.events = 1, 0, nil
	s.records = make(map[string]directory.Record)
	s.leases = make(map[directory.LeaseID]*lease)
}

// announce wakes the watchers. It runs under the lock.
func (s *Store) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// put writes a record at the next revision. It runs under the lock.
func (s *Store) put(c directory.Change) directory.Record {
	s.detach(c.Key)
	s.revision++
	r := directory.Record{Key: c.Key, Value: bytes.Clone(c.Value), Revision: s.revision, Lease: c.Lease}
	s.records[c.Key] = r
	if c.Lease != 0 {
		s.leases[c.Lease].keys[c.Key] = struct{}{}
	}
	s.remember(directory.Event{Kind: directory.Put, Revision: r.Revision, Record: r})
	return r
}

// remove deletes records in one revision. It runs under the lock.
func (s *Store) remove(keys ...string) {
	if len(keys) == 0 {
		return
	}
	s.revision++
	for _, key := range keys {
		s.detach(key)
		delete(s.records, key)
		s.remember(directory.Event{Kind: directory.Delete, Revision: s.revision, Record: directory.Record{Key: key, Revision: s.revision}})
	}
}

// detach takes a record from the lease it is under.
func (s *Store) detach(key string) {
	if l := s.leases[s.records[key].Lease]; l != nil {
		delete(l.keys, key)
	}
}

// remember adds to the history and drops what is too old, whole revisions at a
// time: half a revision would be a gap.
func (s *Store) remember(e directory.Event) {
	s.events = append(s.events, e)
	if len(s.events) > 2*s.history {
		s.forgotten = s.events[len(s.events)-s.history-1].Revision
		first, _ := slices.BinarySearchFunc(s.events, s.forgotten+1, revisionOrder)
		s.events = slices.Clone(s.events[first:])
	}
	s.announce()
}

func revisionOrder(e directory.Event, r directory.Revision) int { return cmp.Compare(e.Revision, r) }

// since returns what changed under prefix after a revision, and a channel that
// is closed when there is more. It runs under the lock.
func (s *Store) since(prefix string, after directory.Revision) ([]directory.Event, <-chan struct{}, error) {
	if after < s.forgotten || after > s.revision {
		return nil, nil, directory.ErrCompacted
	}
	first, _ := slices.BinarySearchFunc(s.events, after+1, revisionOrder)
	var events []directory.Event
	for _, e := range s.events[first:] {
		if strings.HasPrefix(e.Record.Key, prefix) {
			e.Record.Value = bytes.Clone(e.Record.Value)
			events = append(events, e)
		}
	}
	return events, s.changed, nil
}

// end removes a lease and its records. It runs under the lock.
func (s *Store) end(id directory.LeaseID) {
	l := s.leases[id]
	keys := make([]string, 0, len(l.keys))
	for key := range l.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	s.remove(keys...)
	delete(s.leases, id)
}

// expire ends the leases whose time is over, oldest first, and arms the timer
// for the next. It runs under the lock.
func (s *Store) expire() {
	if s.stopped {
		return
	}
	now := s.clock.Now()
	var over []directory.LeaseID
	for id, l := range s.leases {
		if !now.Before(l.expires) {
			over = append(over, id)
		}
	}
	slices.SortFunc(over, func(a, b directory.LeaseID) int {
		return cmp.Or(s.leases[a].expires.Compare(s.leases[b].expires), cmp.Compare(a, b))
	})
	for _, id := range over {
		s.end(id)
	}
	s.arm()
}

// arm sets the timer to the next expiry. It runs under the lock.
func (s *Store) arm() {
	if s.stopTimer != nil {
		s.stopTimer()
		s.stopTimer = nil
	}
	var next time.Time
	for _, l := range s.leases {
		if next.IsZero() || l.expires.Before(next) {
			next = l.expires
		}
	}
	if next.IsZero() || s.stopped {
		return
	}
	s.stopTimer = s.clock.AfterFunc(max(0, next.Sub(s.clock.Now())), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expire()
	})
}

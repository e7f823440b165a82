package store

import (
	"errors"
	"sync/atomic"
	"time"

	"meridian/keep/store/owner"
)

// counters are what a store has done.
type counters struct {
	puts, putsFailed, putsLost, putBytes   atomic.Uint64
	gets, getsMissed, getsFailed, getBytes atomic.Uint64
	putsOverloaded, getsOverloaded         atomic.Uint64
	removes, removesFailed                 atomic.Uint64
	torn, terms                            atomic.Uint64
	sent, lost, heard, malformed           atomic.Uint64
	pagesWritten, pageNanoseconds          atomic.Uint64
}

// Metrics is a snapshot of what a store has done as a client, and how it stands.
type Metrics struct {
	// Puts were stored. PutsLost lost against another writer of their key, or came
	// when it had a value.
	Puts, PutsLost, PutsFailed, PutBytes uint64
	// Gets found their object.
	Gets, GetsMissed, GetsFailed, GetBytes uint64
	Removes, RemovesFailed                 uint64
	// PutsOverloaded and GetsOverloaded found their owner overloaded until their time
	// was over.
	PutsOverloaded, GetsOverloaded uint64
	// Torn objects came with bytes that do not match their sums.
	Torn uint64
	// PagesWritten into plans, and how long one took on average.
	PagesWritten uint64
	MeanPage     time.Duration
	// Terms is how often this process became the master.
	Terms                         uint64
	MessagesSent, MessagesLost    uint64
	MessagesHeard, MessagesBroken uint64
	Operations, Owners            int
	Master                        bool
}

// Metrics returns a snapshot.
func (s *Store) Metrics() Metrics {
	c := &s.counters
	m := Metrics{
		Puts: c.puts.Load(), PutsLost: c.putsLost.Load(), PutsFailed: c.putsFailed.Load(), PutBytes: c.putBytes.Load(),
		Gets: c.gets.Load(), GetsMissed: c.getsMissed.Load(), GetsFailed: c.getsFailed.Load(), GetBytes: c.getBytes.Load(),
		Removes: c.removes.Load(), RemovesFailed: c.removesFailed.Load(), Torn: c.torn.Load(), Terms: c.terms.Load(),
		PutsOverloaded: c.putsOverloaded.Load(), GetsOverloaded: c.getsOverloaded.Load(),
		MessagesSent: c.sent.Load(), MessagesLost: c.lost.Load(), MessagesHeard: c.heard.Load(), MessagesBroken: c.malformed.Load(),
		PagesWritten: c.pagesWritten.Load(), Operations: len(s.places), Owners: len(s.Owners()),
	}
	if m.PagesWritten > 0 {
		m.MeanPage = time.Duration(c.pageNanoseconds.Load() / m.PagesWritten)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Master = s.led != nil
	return m
}

// Kept is how the owner in this process stands, and whether there is one.
func (s *Store) Kept() (stats owner.Stats, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return stats, false
	}
	return s.owned.objects.Stats(), true
}

// Master is who the master is, and its term; "" while none is known.
func (s *Store) Master() (name string, term uint64) {
	leader, _ := s.election.Leader()
	return leader.Name, leader.Term
}

func (c *counters) put(bytes uint64, err error) {
	switch {
	case err == nil:
		c.puts.Add(1)
		c.putBytes.Add(bytes)
	case errors.Is(err, ErrExists), errors.Is(err, ErrBusy):
		c.putsLost.Add(1)
	case errors.Is(err, ErrOverloaded):
		c.putsOverloaded.Add(1)
	default:
		c.putsFailed.Add(1)
	}
}

func (c *counters) get(bytes uint64, err error) {
	switch {
	case err == nil:
		c.gets.Add(1)
		c.getBytes.Add(bytes)
	case errors.Is(err, ErrMissing):
		c.getsMissed.Add(1)
	case errors.Is(err, ErrOverloaded):
		c.getsOverloaded.Add(1)
	default:
		c.getsFailed.Add(1)
	}
}

func (c *counters) remove(err error) {
	if err == nil {
		c.removes.Add(1)
	} else {
		c.removesFailed.Add(1)
	}
}

// wrote notes bytes of a plan that were written, in pages.
func (c *counters) wrote(bytes, page uint64, took time.Duration) {
	c.pagesWritten.Add(max(1, bytes/max(1, page)))
	c.pageNanoseconds.Add(uint64(max(0, took)))
}

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
	Puts       uint64 `metric:"meridian_store_operations_total,put,done"`
	PutsLost   uint64 `metric:"meridian_store_operations_total,put,exists"`
	PutsFailed uint64 `metric:"meridian_store_operations_total,put,failed"`
	PutBytes   uint64 `metric:"meridian_store_operation_bytes_total,put"`
	// Gets found their object.
	Gets          uint64 `metric:"meridian_store_operations_total,get,done"`
	GetsMissed    uint64 `metric:"meridian_store_operations_total,get,missed"`
	GetsFailed    uint64 `metric:"meridian_store_operations_total,get,failed"`
	GetBytes      uint64 `metric:"meridian_store_operation_bytes_total,get"`
	Removes       uint64 `metric:"meridian_store_operations_total,remove,done"`
	RemovesFailed uint64 `metric:"meridian_store_operations_total,remove,failed"`
	// PutsOverloaded and GetsOverloaded found their owner overloaded until their time
	// was over.
	PutsOverloaded uint64 `metric:"meridian_store_operations_total,put,overloaded"`
	GetsOverloaded uint64 `metric:"meridian_store_operations_total,get,overloaded"`
	// Torn objects came with bytes that do not match their sums.
	Torn uint64
	// PagesWritten into plans, and how long one took on average.
	PagesWritten uint64 `metric:"meridian_store_pages_total"`
	MeanPage     time.Duration
	// Terms is how often this process became the master.
	Terms          uint64 `metric:"meridian_store_terms_total"`
	MessagesSent   uint64 `metric:"meridian_store_messages_total,sent"`
	MessagesLost   uint64 `metric:"meridian_store_messages_total,lost"`
	MessagesHeard  uint64 `metric:"meridian_store_messages_total,heard"`
	MessagesBroken uint64 `metric:"meridian_store_messages_total,malformed"`
	Operations     int    `metric:"meridian_store_operations"`
	Owners         int    `metric:"meridian_store_owners"`
	Master         bool   `metric:"meridian_store_master"`
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

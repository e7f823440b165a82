package phase

import (
	"errors"
	"fmt"

	"meridian/kv"
)

var (
	// ErrUnknown means that a sequence was never begun, has ended or was reaped.
	ErrUnknown = errors.New("phase: no such sequence")
	// ErrKnown means that a sequence was begun before and has not ended.
	ErrKnown = errors.New("phase: the sequence has begun before")
	// ErrFull means that an engine has begun more sequences than it can run.
	ErrFull = errors.New("phase: too many sequences")
)

// StaleNs is how long a sequence may be silent before it is reaped, unless the
// owner has a better bound.
const StaleNs = int64(60e9)

// maxSequences is many times what one engine runs: an engine that begins
// sequences and ends none is stopped by it.
const maxSequences = 1 << 17

// Sequence is a number that the feeder of an engine's steps gives each of its
// sequences. A request with several choices has as many.
type Sequence uint64

// Map is the sequences of one engine. One goroutine feeds it; it takes no lock.
// Times are nanoseconds on the feeder's clock.
type Map struct {
	model  *Model
	places map[Sequence]int32
	// entries keep their place, so that an order does not depend on a map's.
	entries []entry
	free    []int32
	// last is the place that was found last. Engines name their sequences in the same
	// order step by step, so that each entry guesses who comes after it.
	last int32
}

type entry struct {
	sequence Sequence
	used     bool
	next     int32 // the place that was found after this one
	lastNs   int64
	machine  Machine
}

// NewMap is the map of an engine that serves this model.
func NewMap(m *Model) *Map { return &Map{model: m, places: make(map[Sequence]int32)} }

// Len is how many sequences are followed.
func (m *Map) Len() int { return len(m.places) }

// Begin follows a sequence from its prompt on.
func (m *Map) Begin(nowNs int64, s Sequence, p Prompt) error {
	return m.add(nowNs, s, m.model.Begin(p))
}

// Resume follows a sequence that was begun elsewhere.
func (m *Map) Resume(nowNs int64, s Sequence, state State) error {
	machine, err := m.model.Resume(state)
	if err != nil {
		return err
	}
	return m.add(nowNs, s, machine)
}

func (m *Map) add(nowNs int64, s Sequence, machine Machine) error {
	if _, known := m.places[s]; known {
		return fmt.Errorf("%w: %d", ErrKnown, s)
	}
	if len(m.places) >= maxSequences {
		return fmt.Errorf("%w: %d are followed; reap those that are silent", ErrFull, len(m.places))
	}
	place := int32(len(m.entries))
	if n := len(m.free); n > 0 {
		place, m.free = m.free[n-1], m.free[:n-1]
	} else {
		m.entries = append(m.entries, entry{})
	}
	m.entries[place] = entry{sequence: s, used: true, lastNs: nowNs, machine: machine}
	m.places[s] = place
	return nil
}

// Step feeds the tokens that a step committed for a sequence and appends what
// they caused to events.
func (m *Map) Step(nowNs int64, s Sequence, tokens []uint32, events []Event) ([]Event, error) {
	place, known := m.find(s)
	if !known {
		return events, fmt.Errorf("%w: %d", ErrUnknown, s)
	}
	e := &m.entries[place]
	e.lastNs = nowNs
	before := len(events)
	events = e.machine.Step(tokens, events)
	named(events[before:], s)
	return events, nil
}

func (m *Map) find(s Sequence) (place int32, known bool) {
	if len(m.places) == 0 {
		return 0, false
	}
	last := &m.entries[m.last]
	for _, place = range [...]int32{last.next, m.last} {
		if e := &m.entries[place]; e.sequence == s && e.used {
			m.last = place
			return place, true
		}
	}
	if place, known = m.places[s]; known {
		last.next, m.last = place, place
	}
	return place, known
}

// End says that no token follows, and forgets the sequence.
func (m *Map) End(s Sequence, events []Event) ([]Event, error) {
	place, known := m.places[s]
	if !known {
		return events, fmt.Errorf("%w: %d", ErrUnknown, s)
	}
	before := len(events)
	events = m.entries[place].machine.End(events)
	named(events[before:], s)
	m.drop(place)
	return events, nil
}

// Touch says that a sequence lives although it commits nothing: it waits or is
// paused.
func (m *Map) Touch(nowNs int64, s Sequence) {
	if place, known := m.places[s]; known {
		m.entries[place].lastNs = nowNs
	}
}

// Machine is a copy of a sequence's machine.
func (m *Map) Machine(s Sequence) (Machine, bool) {
	place, known := m.find(s)
	if !known {
		return Machine{}, false
	}
	return m.entries[place].machine, true
}

// Phase is where a sequence stands; one that is not followed is Complete.
func (m *Map) Phase(s Sequence) kv.Phase {
	if place, known := m.places[s]; known {
		return m.entries[place].machine.phase
	}
	return kv.Complete
}

// Reap forgets the sequences that have been silent for longer than staleNs, and
// appends them to gone.
func (m *Map) Reap(nowNs, staleNs int64, gone []Sequence) []Sequence {
	for place := range m.entries {
		if e := &m.entries[place]; e.used && nowNs-e.lastNs > staleNs {
			gone = append(gone, e.sequence)
			m.drop(int32(place))
		}
	}
	return gone
}

func (m *Map) drop(place int32) {
	delete(m.places, m.entries[place].sequence)
	m.entries[place] = entry{}
	m.free = append(m.free, place)
}

func named(events []Event, s Sequence) {
	for i := range events {
		events[i].Sequence = s
	}
}

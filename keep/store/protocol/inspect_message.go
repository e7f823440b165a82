package protocol

import (
	"errors"

	"meridian/internal/fields"
	"meridian/keep/store/owner"
	"meridian/kv"
)

// Inspect asks an owner what it has of these objects, and where. It counts as no use of them.
// It is answered by Seen.
type Inspect struct{ Names [][]byte }

func (*Inspect) kind() uint8 { return 33 }

func (m *Inspect) each(c fields.Codec) { eachName(c, &m.Names) }

// Memory is how the first tier of an owner is called; those below have names of their own.
const Memory = "memory"

// Availability is one of them.
type Availability struct {
	// Tier is where it lies, nearest first: Memory, or the name of a tier; "" for nowhere.
	Tier string
	// Of what lies in memory: its size, how long ago it was used, who reads it.
	Bytes, AgeSeconds uint64
	Readers           uint16
	Pinned            bool
}

// Inspected has one entry for each that was asked for.
type Inspected struct{ Objects []Availability }

const maxTierName = 32

func (*Inspected) kind() uint8 { return 34 }

func (m *Inspected) each(c fields.Codec) {
	fields.List(c, MaxKeys, &m.Objects, func(o *Availability) {
		if c.Text(maxTierName, &o.Tier); o.Tier != "" {
			c.Uint(&o.Bytes, &o.AgeSeconds)
			fields.UpTo(c, 1<<16-1, &o.Readers)
			c.Flag(&o.Pinned)
		}
	})
}

// Pin asks an owner to keep objects of its memory from being evicted, or to let them be
// again. It counts as no use of them. It is answered by Pins.
type Pin struct {
	Names [][]byte
	On    bool
}

func (*Pin) kind() uint8 { return 35 }

func (m *Pin) each(c fields.Codec) {
	eachName(c, &m.Names)
	c.Flag(&m.On)
}

// Pins is what came of it.
type Pins struct {
	// Done are as they were asked to be, Missing are not in memory, Refused are beyond what
	// may be pinned.
	Done, Missing, Refused uint64
	// Bytes are pinned now, of all objects of the owner; Most may be.
	Bytes, Most uint64
}

func (*Pins) kind() uint8 { return 36 }

func (m *Pins) each(c fields.Codec) { c.Uint(&m.Done, &m.Missing, &m.Refused, &m.Bytes, &m.Most) }

// inspect is what lies in memory; the shell knows of tiers.
func (s *Server) inspect(now kv.Instant, m *Inspect) *Inspected {
	seen := &Inspected{Objects: make([]Availability, len(m.Names))}
	for i, name := range m.Names {
		if o, is := s.objects.Inspect(now, name); is {
			seen.Objects[i] = Availability{Tier: Memory, Bytes: o.Bytes, AgeSeconds: o.AgeSeconds, Readers: o.Readers, Pinned: o.Pinned}
		}
	}
	return seen
}

func (s *Server) pin(m *Pin) *Pins {
	pins := &Pins{Most: s.objects.PinnedMost()}
	for _, name := range m.Names {
		switch err := s.objects.SetPinned(name, m.On); {
		case err == nil:
			pins.Done++
		case errors.Is(err, owner.ErrFull):
			pins.Refused++
		default:
			pins.Missing++
		}
	}
	pins.Bytes = s.objects.Pinned()
	return pins
}

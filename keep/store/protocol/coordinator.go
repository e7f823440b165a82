package protocol

import (
	"errors"

	"meridian/keep/store/master"
	"meridian/kv"
)

// Coordinator is the master's side of the conversation.
type Coordinator struct {
	master *master.Master
	term   uint64
}

// NewCoordinator lets a master speak that was just elected.
func NewCoordinator(m *master.Master, term uint64) *Coordinator { return &Coordinator{m, term} }

// Receive takes a message. Authority is how long this process surely is the
// master; without it nothing is said that another master may know better.
func (c *Coordinator) Receive(now, authority kv.Instant, from kv.Member, request uint64, m Message) []Effect {
	answer := func(m Message) Effect { return Send{from, request, m} }
	if authority <= 0 {
		return []Effect{answer(&Reply{problemOf(master.ErrOldTerm)})}
	}
	switch m := m.(type) {
	case *Where:
		return []Effect{answer(c.where(m))}
	case *Forget:
		name, err := c.master.Remove(m.Hash)
		if err != nil {
			return []Effect{answer(&Reply{problemOf(err)})}
		}
		return []Effect{answer(&Owners{Names: []string{name}})}
	case *Renew:
		if !isFrom(from, m.Owner, m.Incarnation) {
			return []Effect{answer(&Reply{problemOf(ErrRefused)})}
		}
		a, effects := c.master.Renew(now, m.Renew, authority)
		return append(marks(effects), answer(&Answer{a}))
	case *Keys:
		if isFrom(from, m.Owner, m.Incarnation) {
			_ = c.master.Tell(now, m.Keys) // what is out of turn is asked for again
		}
	case *Claim:
		err := error(ErrRefused)
		if isFrom(from, m.Owner, m.Incarnation) {
			err = c.master.Claim(now, m.Claim)
		}
		return []Effect{answer(&Claimed{c.term, problemOf(err)})}
	case *Dropped:
		if !isFrom(from, m.Owner, m.Incarnation) || m.Term != c.term {
			return []Effect{answer(&Reply{problemOf(master.ErrOldTerm)})}
		}
		for _, d := range m.Drops {
			_ = c.master.Dropped(master.Claim{Owner: m.Owner, Incarnation: m.Incarnation, Term: m.Term, Serial: d.Serial, Oldest: m.Oldest, Hash: d.Hash})
		}
		return []Effect{answer(&DroppedAck{c.term})}
	}
	return nil
}

// Knows reports whether a start of an owner is one that the master has heard of.
func (c *Coordinator) Knows(p kv.Member) bool { return c.master.Knows(p.Name, p.Incarnation) }

// isFrom reports whether an agent speaks for itself.
func isFrom(from kv.Member, name string, incarnation kv.ID) bool {
	return from == kv.Member{Name: name, Incarnation: incarnation}
}

func (c *Coordinator) where(m *Where) Message {
	found := &Owners{Names: make([]string, len(m.Hashes))}
	for i, hash := range m.Hashes {
		name, err := c.master.Locate(hash)
		if err != nil && !errors.Is(err, master.ErrMissing) {
			return &Reply{problemOf(err)}
		}
		found.Names[i] = name
	}
	return found
}

// Tick lets time pass.
func (c *Coordinator) Tick(now, authority kv.Instant) []Effect {
	if authority <= 0 {
		return nil
	}
	return marks(c.master.Tick(now))
}

// Marked says that a mark is written down.
func (c *Coordinator) Marked(now kv.Instant, m Mark) { c.master.Marked(now, m.Effect) }

func marks(effects []master.Effect) (all []Effect) {
	for _, e := range effects {
		all = append(all, Mark{e})
	}
	return all
}

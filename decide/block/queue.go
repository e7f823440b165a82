package block

import "meridian/kv"

// queue is where a block stands. From spent on, they are those that may go, in
// the order in which they do.
type queue uint8

const (
	vacant queue = iota
	spent
	cached
	thinkComplete
	thinkActive
	outputCritical
	queues // how many there are
	limbo  = queues
)

// place puts a block where it belongs by what is known of it. What stays in its
// queue keeps its place there.
func (t *Table) place(b uint32) {
	s := &t.slots[b]
	tier := s.mostProtected()
	if tier != s.tier {
		t.byTier[s.tier]--
		t.byTier[tier]++
		s.tier = tier
	}
	q := t.belongs(s)
	if q == s.queue {
		return
	}
	if s.queue != limbo {
		t.unlink(b)
	}
	if q == vacant {
		s.marks, s.was = 0, untiered
	}
	if q != limbo {
		t.link(b, q)
	}
}

func (s *slot) mostProtected() kv.Tier {
	for tier := kv.OutputCritical; ; tier-- {
		switch {
		case s.tiers[tier] > 0:
			return tier
		case tier == 0:
			return untiered
		}
	}
}

// belongs is the rule: which blocks may go, and before which others.
func (t *Table) belongs(s *slot) queue {
	switch held := s.tier != untiered; {
	case s.has(leaving | arriving), s.running > 0, s.needed > 0 && !s.has(copied):
		return limbo
	case !held && !s.has(sealed):
		return vacant
	case t.aggressive && (s.tier == kv.ThinkComplete || !held && s.was == kv.ThinkComplete) && (s.has(copied) || s.forgone > 0):
		return spent
	case !held:
		return cached
	}
	return thinkComplete + queue(s.tier)
}

// head is the sentinel of a queue.
func (t *Table) head(q queue) uint32 { return uint32(t.blocks) + uint32(q) }

// link puts a block at the end of a queue. Vacant ones are taken where they were
// left last, which is where the processor's caches know them.
func (t *Table) link(b uint32, q queue) {
	s, head := &t.slots[b], t.head(q)
	before := t.slots[head].prev
	if q == vacant {
		before = head
	}
	after := t.slots[before].next
	s.prev, s.next, s.queue = before, after, q
	t.slots[before].next, t.slots[after].prev = b, b
	t.queued[q]++
}

func (t *Table) unlink(b uint32) {
	s := &t.slots[b]
	t.slots[s.prev].next, t.slots[s.next].prev = s.next, s.prev
	t.queued[s.queue]--
	s.queue = limbo
}

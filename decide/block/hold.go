package block

import (
	"math"

	"meridian/kv"
)

// hold is one request's right to a block.
type hold struct {
	request uint32
	block   uint32 // none: the copy elsewhere is all there is
	// Neighbours in the request's list, oldest first, and in the block's.
	older, newer uint32
	next, prev   uint32
	// ahead is the slot of a hold that is some older: who walks along the list
	// reads it early, so that memory has it in time. It may be any slot.
	ahead uint32
	tier  kv.Tier
}

// readAhead is how many holds older that one is: about what a processor asks
// memory for at a time.
const readAhead = 8

// hold is a hold by its number.
func (t *Table) hold(h uint32) *hold {
	if int(h) < t.blocks {
		return &t.slots[h].own
	}
	return &t.extra[int(h)-t.blocks]
}

// newHold begins a hold at the end of its request's list: in the slot of b, which
// it will be on, if there is room, else among the extra ones.
func (t *Table) newHold(request, b uint32, tier kv.Tier) uint32 {
	h := b
	if t.slots[b].own.request != none {
		h = t.newExtra()
	}
	q := &t.requests[request]
	*t.hold(h) = hold{request: request, block: none, older: q.newest, newer: none, next: none, prev: none, tier: tier, ahead: q.recent[q.at%readAhead]}
	if int(h) < t.blocks {
		q.recent[q.at%readAhead] = h
		q.at++
	}
	if q.newest != none {
		t.hold(q.newest).newer = h
	} else {
		q.oldest = h
	}
	q.newest = h
	q.holds++
	q.away++
	return h
}

// warm asks memory for what comes after a hold.
func (t *Table) warm(n *hold) { t.early += t.slots[n.ahead].next }

func (t *Table) newExtra() uint32 {
	if t.freeExtra == none {
		t.extra = append(t.extra, hold{})
		return uint32(t.blocks + len(t.extra) - 1)
	}
	h := t.freeExtra
	t.freeExtra = t.hold(h).next
	return h
}

// endHold ends a hold that is on no block.
func (t *Table) endHold(h uint32) {
	n := t.hold(h)
	q := &t.requests[n.request]
	if n.older != none {
		t.hold(n.older).newer = n.newer
	} else {
		q.oldest = n.newer
	}
	if n.newer != none {
		t.hold(n.newer).older = n.older
	} else {
		q.newest = n.older
	}
	q.holds--
	q.away--
	n.request = none
	if int(h) >= t.blocks {
		n.next = t.freeExtra
		t.freeExtra = h
	}
}

// attach puts a hold on a block.
func (t *Table) attach(h, b uint32) {
	n, s := t.hold(h), &t.slots[b]
	q := &t.requests[n.request]
	n.block, n.next, n.prev = b, s.first, none
	if s.first != none {
		t.hold(s.first).prev = h
	}
	s.first = h
	s.tiers[n.tier]++
	q.away--
	t.counts.Holds++
	t.count(s, q.state, 1)
	t.place(b)
}

// detach takes a hold off its block.
func (t *Table) detach(h uint32) {
	n := t.hold(h)
	b, s, q := n.block, &t.slots[n.block], &t.requests[n.request]
	if n.prev != none {
		t.hold(n.prev).next = n.next
	} else {
		s.first = n.next
	}
	if n.next != none {
		t.hold(n.next).prev = n.prev
	}
	n.block = none
	s.tiers[n.tier]--
	s.was = n.tier
	q.away++
	t.counts.Holds--
	t.count(s, q.state, minusOne)
	t.place(b)
}

// count adds a holder in a state to what the slot knows of its holders, or takes
// one away. One that runs writes a block that is not full: a copy of it is no
// longer equal.
func (t *Table) count(s *slot, state State, n uint16) {
	switch state {
	case Running:
		s.running += n
		if n == 1 && !s.has(sealed) {
			s.marks &^= copied
			if s.has(leaving) {
				s.marks |= stale
			}
		}
	case Paused:
		s.needed += n
	case Forgone:
		s.forgone += n
	}
}

// minusOne takes a holder away.
const minusOne = math.MaxUint16

package replay

// firstOfTenant is how many waiting requests of each tenant a policy sees in any
// case: what one sends by the thousand hides no other tenant.
const firstOfTenant = 4

// backlog is who waits at an engine and is not seen by its policy.
type backlog struct {
	// came has all in order, and between them those that were shown early; of has
	// those of each tenant.
	came queue
	of   []queue
	size int
	// number counts tickets, and early those who wait and were shown before their
	// turn.
	number int64
	early  int32
	// seen is how many waiting requests of each tenant are shown, and owing are
	// tenants of whom there might be too few.
	seen  []int32
	owing []int32
}

// ticket is the place of a request in the order of its engine.
type ticket struct {
	seq    *sequence
	number int64
	shown  bool
	// early: it waits and was shown before some that came earlier.
	early bool
}

func (b *backlog) push(s *sequence) {
	for int(s.tenant) >= len(b.of) {
		b.of, b.seen = append(b.of, queue{}), append(b.seen, 0)
	}
	b.number++
	s.ticket = &ticket{seq: s, number: b.number}
	b.came.push(s.ticket)
	b.of[s.tenant].push(s.ticket)
	b.size++
	b.owing = append(b.owing, s.tenant)
}

// pop is the next one to be shown, while so many others wait that are: the one
// that came first, as long as fewer than window were shown in their turn; then
// one that is among the first of its tenant. It is nil if all others have to wait.
func (b *backlog) pop(window int, waiting int32) *sequence {
	for int(waiting-b.early) < window && b.came.len() > 0 {
		t := b.came.pop()
		if t.shown {
			b.inTurn(t)
			continue
		}
		b.of[t.seq.tenant].pop()
		return b.show(t)
	}
	for len(b.owing) > 0 {
		tenant := b.owing[len(b.owing)-1]
		if own := &b.of[tenant]; own.len() > 0 && b.seen[tenant] < firstOfTenant {
			t := own.pop()
			t.early = true
			b.early++
			return b.show(t)
		}
		b.owing = b.owing[:len(b.owing)-1]
	}
	return nil
}

func (b *backlog) show(t *ticket) *sequence {
	t.shown = true
	b.size--
	b.waits(t.seq)
	return t.seq
}

// inTurn: all who came before it have been shown.
func (b *backlog) inTurn(t *ticket) {
	if t.early {
		t.early = false
		b.early--
	}
}

// waits: s is shown and waits, from now on or again.
func (b *backlog) waits(s *sequence) { b.seen[s.tenant]++ }

// admitted: s waits no longer.
func (b *backlog) admitted(s *sequence) {
	b.inTurn(s.ticket)
	b.seen[s.tenant]--
	b.owing = append(b.owing, s.tenant)
}

// queue is first in, first out.
type queue struct {
	tickets []*ticket
	head    int
}

func (q *queue) len() int       { return len(q.tickets) - q.head }
func (q *queue) push(t *ticket) { q.tickets = append(q.tickets, t) }

func (q *queue) pop() *ticket {
	t := q.tickets[q.head]
	q.tickets[q.head] = nil
	q.head++
	if q.head > len(q.tickets)/2 {
		left := copy(q.tickets, q.tickets[q.head:])
		clear(q.tickets[left:])
		q.tickets, q.head = q.tickets[:left], 0
	}
	return t
}

package master

import "meridian/kv"

// Member is an owner's side: whether it may answer, and what it must do first.
type Member struct {
	Owner       string
	Incarnation kv.ID

	term    uint64
	seq     uint64
	asked   [window]kv.Instant // when, by number
	until   kv.Instant
	granted uint64 // the newest answer that granted a lease
	void    uint64 // answers up to that number are of before a sleep
	dropped uint64
	next    kv.Instant // when to ask again
	pace    kv.Instant
	serial  uint64
}

// window is how many answers an owner still knows what to do with.
const window = 64

const (
	// impatient is the pace of an owner without a lease.
	impatient = 50 * kv.Millisecond
)

// Order is what a member must do before it is heard again.
type Order struct {
	// Tell asks for all keys, as parts of Keys of this term and of Seq.
	Tell bool
	// Drop asks for Keys, or All, to be dropped; then Dropped is called with Seq.
	Drop bool
	All  bool
	Keys []uint64
	Seq  uint64
}

// Term is that of the newest master the member has heard of.
func (m *Member) Term() uint64 { return m.term }

// Elected says that there is a master of a term. Whatever an older one granted is
// over.
func (m *Member) Elected(term uint64) {
	if term > m.term {
		*m = Member{Owner: m.Owner, Incarnation: m.Incarnation, term: term, seq: m.seq, serial: m.serial}
	}
}

// Slept says that time has passed which the member's clock did not count: its
// machine was suspended. What it has, and what it has asked for, may be over.
func (m *Member) Slept() { m.until, m.void, m.next = 0, m.seq, 0 }

// Answers reports whether the owner has a lease: whether it may serve and store.
func (m *Member) Answers(now kv.Instant) bool { return now < m.until }

// Tick asks for a lease when it is time to.
func (m *Member) Tick(now kv.Instant) (Renew, bool) {
	if m.term == 0 || now < m.next {
		return Renew{}, false
	}
	m.seq++
	m.asked[m.seq%window] = now
	m.next = now + impatient
	if m.Answers(now) {
		m.next = now + max(impatient, m.pace)
	}
	return Renew{Owner: m.Owner, Incarnation: m.Incarnation, Term: m.term, Seq: m.seq, Dropped: m.dropped}, true
}

// Heard takes an answer. One that is too old says nothing, and no order does that
// comes after what it was the condition for: a lease, or that it was carried out.
func (m *Member) Heard(a Answer) Order {
	if a.Term > m.term {
		m.Elected(a.Term)
		return Order{}
	}
	if a.Term < m.term || a.Seq > m.seq || a.Seq+window <= m.seq {
		return Order{}
	}
	if a.Verdict != Granted && a.Seq <= max(m.granted, m.dropped) {
		return Order{}
	}
	switch a.Verdict {
	case Granted:
		m.granted, m.pace = max(m.granted, a.Seq), a.Length/3
		if a.Seq > m.void {
			m.until = max(m.until, m.asked[a.Seq%window]+a.Length)
		}
	case Tell:
		m.until = 0
		return Order{Tell: true, Seq: a.Seq}
	case Drop:
		m.until = 0
		return Order{Drop: true, All: a.All, Keys: a.Keys, Seq: a.Seq}
	}
	return Order{}
}

// Serial numbers the owner's next word about its keys.
func (m *Member) Serial() uint64 {
	m.serial++
	return m.serial
}

// NextSerial is what Serial will say.
func (m *Member) NextSerial() uint64 { return m.serial + 1 }

// Dropped says that an order to drop was carried out.
func (m *Member) Dropped(seq uint64) { m.dropped = seq }

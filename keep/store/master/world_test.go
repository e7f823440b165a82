package master

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"meridian/kv"
)

// world is owners, masters that come and go, and a network that delays, drops and
// repeats. All share its one clock, each with an offset of its own.
type world struct {
	t       failing
	of      string // which world it is
	random  *rand.Rand
	now     kv.Instant
	term    uint64
	masters []*seat // the last is the one that was elected last
	owners  []*holder
	wire    []queuedMessage
	marks   map[string]kv.ID
	truth   map[uint64]int // keys that were put and neither removed nor lost: by whom
	marked  int            // how often an owner was
	removed int
	given   int
}

type failing interface {
	Helper()
	Fatalf(format string, args ...any)
}

// seat is a process that is or was master.
type seat struct {
	*Master
	term      uint64
	authority kv.Instant // by the world's clock
	dead      bool
}

// holder is an owner with its keys.
type holder struct {
	Member
	keys   map[uint64]bool
	claims map[uint64]Claim // asked for, not yet answered
	offset kv.Instant
	cut    bool // from masters
	drops  []Claim
}

// word is what an owner says of a key.
func (o *holder) word(hash uint64) Claim {
	return Claim{o.Owner, o.Incarnation, o.Term(), o.Serial(), o.oldest(), hash}
}

// oldest is the first claim that it still waits for.
func (o *holder) oldest() uint64 {
	oldest := o.NextSerial() - 1 // the word that is just being said
	for _, c := range o.claims {
		oldest = min(oldest, c.Serial)
	}
	return oldest
}

type queuedMessage struct {
	at      kv.Instant
	deliver func()
}

const worldLease = 3 * kv.Second

func newWorld(t *testing.T, seed uint64) *world {
	return newWorldOf(t, fmt.Sprint("seed ", seed), rand.NewPCG(seed, 1))
}

func newWorldOf(t failing, of string, chance rand.Source) *world {
	w := &world{t: t, of: of, random: rand.New(chance), now: 1000 * kv.Second, marks: map[string]kv.ID{}, truth: map[uint64]int{}}
	for i := range 3 {
		w.owners = append(w.owners, &holder{
			Member: Member{Owner: fmt.Sprint("owner-", i), Incarnation: kv.ID{byte(i + 1)}},
			keys:   map[uint64]bool{}, claims: map[uint64]Claim{}, offset: kv.Instant(w.random.Int64N(1e9)),
		})
	}
	w.elect()
	return w
}

// elect makes a master of the next term. The one before has lost its authority.
func (w *world) elect() {
	for _, s := range w.masters {
		if w.now < s.authority {
			w.now = s.authority
		}
	}
	w.term++
	var roster, marks []Mark
	for _, o := range w.owners {
		roster = append(roster, Mark{o.Owner, o.Incarnation})
	}
	for _, name := range slices.Sorted(maps.Keys(w.marks)) {
		marks = append(marks, Mark{name, w.marks[name]})
	}
	w.masters = append(w.masters, &seat{
		Master: New(w.now, Options{Term: w.term, Lease: worldLease}, roster, marks), term: w.term, authority: w.now + 2*worldLease,
	})
	for _, o := range w.owners {
		term := w.term
		w.wire = append(w.wire, queuedMessage{w.now + w.span(kv.Second), func() { o.Elected(term) }}) // the directory tells all owners
	}
}

func (w *world) leader() *seat { return w.masters[len(w.masters)-1] }

// send delivers later, twice, or never.
func (w *world) send(deliver func()) {
	switch w.random.IntN(10) {
	case 0:
		return
	case 1:
		w.wire = append(w.wire, queuedMessage{w.now + w.span(6*kv.Second), deliver})
	}
	w.wire = append(w.wire, queuedMessage{w.now + w.span(20*kv.Millisecond), deliver})
}

// span is a random time.
func (w *world) span(most kv.Instant) kv.Instant { return kv.Instant(w.random.Int64N(int64(most))) }

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s: "+format, append([]any{w.of}, args...)...)
}

// carry lets effects reach the directory, which only the leader can write. Its
// shell tries until they are there.
func (w *world) carry(s *seat, effects []Effect) {
	for _, e := range effects {
		w.wire = append(w.wire, queuedMessage{w.now + w.span(kv.Second), func() {
			if s != w.leader() || s.dead {
				return
			}
			if e.Away {
				w.marks[e.Owner] = e.Incarnation
				w.marked++
			} else {
				delete(w.marks, e.Owner)
			}
			s.Marked(w.now, e)
		}})
	}
}

func (w *world) step(by kv.Instant) {
	end := w.now + by
	for w.now < end {
		w.now = min(end, w.now+10*kv.Millisecond)
		due := slices.DeleteFunc(slices.Clone(w.wire), func(l queuedMessage) bool { return l.at > w.now })
		w.wire = slices.DeleteFunc(w.wire, func(l queuedMessage) bool { return l.at <= w.now })
		for _, l := range due {
			l.deliver()
		}
		if s := w.leader(); !s.dead {
			s.authority = w.now + 2*worldLease
			w.carry(s, s.Tick(w.now))
		}
		for _, o := range w.owners {
			w.tick(o)
		}
		w.check()
	}
}

// tick lets an owner ask for its lease, at the master that it believes in.
func (w *world) tick(o *holder) {
	renew, due := o.Tick(w.now + o.offset)
	renew.Oldest = o.oldest()
	if !due || o.cut {
		return
	}
	if len(o.drops) > 0 {
		for _, claim := range o.drops {
			w.toMaster(o, func(s *seat) { _ = s.Dropped(claim) })
		}
		o.drops = nil
	}
	w.toMaster(o, func(s *seat) {
		answer, effects := s.Renew(w.now, renew, s.authority-w.now)
		w.carry(s, effects)
		w.send(func() { w.obey(o, o.Heard(answer)) })
	})
}

func (w *world) toMaster(o *holder, deliver func(*seat)) {
	term := o.Term()
	w.send(func() {
		for _, s := range w.masters {
			if s.term == term && !s.dead && !o.cut && w.now < s.authority {
				deliver(s)
			}
		}
	})
}

// obey does what a master wants.
func (w *world) obey(o *holder, order Order) {
	switch {
	case order.Tell:
		hashes := slices.Sorted(maps.Keys(o.keys))
		half, serial := len(hashes)/2, o.Serial()
		for part, some := range [][]uint64{hashes[:half], hashes[half:]} {
			k := Keys{o.Owner, o.Incarnation, o.Term(), order.Seq, serial, uint32(part), part == 1, some}
			w.toMaster(o, func(s *seat) { _ = s.Tell(w.now, k) })
		}
	case order.Drop:
		for hash := range o.keys {
			if order.All || slices.Contains(order.Keys, hash) {
				delete(o.keys, hash)
				w.given++
			}
		}
		maps.DeleteFunc(o.claims, func(hash uint64, _ Claim) bool { return order.All || slices.Contains(order.Keys, hash) })
		o.Dropped(order.Seq)
	}
}

// check demands the promise: of the owners that may answer no two hold a key, and
// none holds a key that was removed.
func (w *world) check() {
	holds := map[uint64]int{}
	for i, o := range w.owners {
		if !o.Answers(w.now + o.offset) {
			continue
		}
		for hash := range o.keys {
			if other, is := holds[hash]; is {
				w.fatalf("owners %d and %d both answer for key %d", i, other, hash)
			}
			holds[hash] = i
			if by, is := w.truth[hash]; !is || by != i {
				w.fatalf("owner %d answers for key %d, which is %v at owner %d", i, hash, is, by)
			}
		}
	}
}

func (w *world) owner() (int, *holder) {
	i := w.random.IntN(len(w.owners))
	return i, w.owners[i]
}

// put claims a key and stores it, if the answer comes while the lease stands.
func (w *world) put() {
	i, o := w.owner()
	hash := 1 + w.random.Uint64N(6)
	if !o.Answers(w.now+o.offset) || o.keys[hash] {
		return
	}
	if _, is := o.claims[hash]; is { // no answer came: it is given up
		delete(o.claims, hash)
		o.drops = append(o.drops, o.word(hash))
	}
	claim := o.word(hash)
	o.claims[hash] = claim
	w.toMaster(o, func(s *seat) {
		err := s.Claim(w.now, claim)
		w.send(func() {
			if o.claims[hash] != claim {
				return // answered before, or given up
			}
			delete(o.claims, hash)
			if err != nil || !o.Answers(w.now+o.offset) || o.Term() != claim.Term {
				return
			}
			o.keys[hash] = true
			w.truth[hash] = i
		})
	})
}

// remove asks the owner that holds a key, or the master about one that is away.
func (w *world) remove() {
	hash := 1 + w.random.Uint64N(6)
	for _, o := range w.owners {
		if o.Answers(w.now+o.offset) && o.keys[hash] {
			delete(o.keys, hash)
			delete(w.truth, hash)
			w.removed++
			o.drops = append(o.drops, o.word(hash))
			return
		}
	}
	s := w.leader()
	if s.dead {
		return
	}
	owner, err := s.Remove(hash)
	if owner == "" && err == nil || errors.Is(err, ErrMissing) {
		delete(w.truth, hash) // the client was told that it is gone
	}
}

func TestNoKeyHasTwoValues(t *testing.T) {
	answered, removed, given := 0, 0, 0
	for seed := range uint64(500) {
		w := newWorld(t, seed)
		for range 60 {
			switch n := w.random.IntN(20); {
			case n < 8:
				w.put()
			case n < 11:
				w.remove()
			case n < 12:
				_, o := w.owner()
				o.cut = !o.cut
			case n < 13 && w.random.IntN(3) == 0:
				w.leader().dead = true
				w.elect()
			case n < 14:
				w.step(w.span(6 * kv.Second))
			default:
				w.step(w.span(300 * kv.Millisecond))
			}
		}
		for _, o := range w.owners {
			answered += len(o.keys)
		}
		removed, given = removed+w.removed, given+w.given
	}
	if answered < 100 || removed < 100 || given < 20 {
		t.Errorf("%d keys were held, %d removed, %d given away: these worlds show little", answered, removed, given)
	}
}

// The master against the model of world.check: what it holds true of keys.
func TestMasterAsAStateMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorldOf(t, "as drawn", rand.NewPCG(rapid.Uint64().Draw(t, "network"), 2))
		w.step(2 * kv.Second)
		t.Repeat(map[string]func(*rapid.T){
			"puts": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "puts") {
					w.put()
				}
			},
			"remove": func(*rapid.T) { w.remove() },
			"cut or mend": func(*rapid.T) {
				_, o := w.owner()
				o.cut = !o.cut
			},
			"another master": func(*rapid.T) {
				w.leader().dead = true
				w.elect()
			},
			"a moment": func(t *rapid.T) {
				w.step(kv.Instant(rapid.IntRange(1, 300).Draw(t, "milliseconds")) * kv.Millisecond)
			},
			"a while": func(t *rapid.T) {
				w.step(kv.Instant(rapid.IntRange(1, 6000).Draw(t, "milliseconds")) * kv.Millisecond)
			},
			"": func(*rapid.T) { w.check() },
		})
	})
}

// A master that dies loses nothing, if no owner was cut off.
func TestFailoverLosesNothing(t *testing.T) {
	whole := 0
	for seed := range uint64(50) {
		w := newWorld(t, seed)
		w.step(3 * kv.Second)
		for range 40 {
			w.put()
			w.step(100 * kv.Millisecond)
		}
		w.step(5 * kv.Second)
		before := len(w.truth)
		marked := w.marked
		w.leader().dead = true
		w.elect()
		w.step(10 * kv.Second)
		after := 0
		for _, o := range w.owners {
			for tries := 0; !o.Answers(w.now+o.offset) && tries < 100; tries++ {
				w.step(100 * kv.Millisecond)
			}
			if o.Answers(w.now + o.offset) {
				after += len(o.keys)
			}
		}
		if w.marked > marked {
			continue // an owner could not be heard in time
		}
		whole++
		if before == 0 || after < before {
			w.fatalf("%d keys before, %d after", before, after)
		}
	}
	if whole < 35 {
		t.Errorf("only in %d of 50 worlds every owner was heard in time", whole)
	}
}

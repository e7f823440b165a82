package master

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"meridian/kv"
)

// What a master answers besides.
var (
	// ErrTaken means that another owner has the key, or is about to.
	ErrTaken = errors.New("store: another owner has the key")
	// ErrCrowded means that the owner has as many keys as one may have.
	ErrCrowded = errors.New("store: the owner has all the keys that one may have")
	// ErrMissing means that no owner has it.
	ErrMissing = errors.New("store: no such object")
	// ErrUnsettled means that the master does not know yet: ask again.
	ErrUnsettled = errors.New("store: the master has not heard of every owner yet; try again")
	// ErrSilent means that the owner has no lease.
	ErrSilent = errors.New("store: the owner has no lease")
	// ErrOldTerm means that the side that asks, or is asked, belongs to another term.
	ErrOldTerm = errors.New("store: another term")
)

// Options of a master.
type Options struct {
	Term uint64
	// Lease is the longest that an owner gets; default 3 s.
	Lease kv.Instant
	// Grace is how long a new master waits for owners of the roster; default the
	// longest lease.
	Grace kv.Instant
}

// Effect is what a master wants to be written down for its successors: that an
// owner is away, or that it is back. The shell answers with Marked.
type Effect struct {
	Owner       string
	Incarnation kv.ID
	Away        bool
}

// Mark is an owner that a predecessor wrote down as away.
type Mark struct {
	Owner       string
	Incarnation kv.ID
}

// Master names the owner of each key.
type Master struct {
	options Options
	owners  map[string]*member
	index   map[uint64]claim
	begun   kv.Instant
	settled bool
	ticked  kv.Instant // when time passed last, 0 before the first time
}

// claim is who has a key, and since which of its words.
type claim struct {
	*member
	serial uint64
}

// standing is what a master thinks of an owner.
type standing uint8

const (
	expected standing = iota // on the roster; has not told its keys
	telling
	live
	lapsed  // its lease is over, and that is being written down
	away    // and is written down
	cleared // it has dropped what it must, and that is being written down
)

// member is an owner, as the master knows it.
type member struct {
	name        string
	incarnation kv.ID
	standing    standing
	until       kv.Instant // of its lease
	keys        map[uint64]struct{}
	// told is the telling that goes on, since is when it last got further, parts are
	// what came of it, of so many once the last has come.
	told  uint64
	since kv.Instant
	parts map[uint32]struct{}
	of    int
	// oldest is the first of its claims that counts.
	oldest uint64
	// given are keys that others got, or that were removed, while it was away;
	// all means that the master does not remember which.
	given map[uint64]struct{}
	all   bool
	// dropping is the answer that asked it to drop them, ordered the last that asked
	// for anything: one number never stands for two orders.
	dropping, ordered uint64
}

const (
	// MaxGiven bounds what is remembered of an owner that is away: one answer holds it.
	MaxGiven = 1 << 18
	// maxKeys bounds what one owner may hold: an arena of a terabyte, in objects of
	// 64 KiB.
	maxKeys = 1 << 24
	// MaxParts bounds in how many parts an owner tells its keys.
	MaxParts = 1 << 12
)

// New makes a master that was just elected. The roster is who may own something:
// every owner that was granted a lease under a name last, whether it can be reached or
// not. One that is left out while it is away, and is listed again later, would bring
// back what was given away meanwhile. Marks are what its predecessors wrote down.
func New(now kv.Instant, o Options, roster []Mark, marks []Mark) *Master {
	o.Lease = cmp.Or(o.Lease, 3*kv.Second)
	o.Grace = cmp.Or(o.Grace, o.Lease)
	m := &Master{options: o, owners: make(map[string]*member), index: make(map[uint64]claim), begun: now}
	for _, r := range roster {
		m.join(r.Owner, r.Incarnation)
	}
	for _, r := range marks {
		w := m.owners[r.Owner]
		if w == nil {
			w = m.join(r.Owner, r.Incarnation)
		}
		if w.incarnation == r.Incarnation {
			w.standing, w.all = away, true
		}
	}
	m.settle()
	return m
}

func (m *Master) join(name string, incarnation kv.ID) *member {
	w := &member{name: name, incarnation: incarnation, keys: make(map[uint64]struct{}), given: make(map[uint64]struct{})}
	m.owners[name] = w
	return w
}

// settle notes when no owner is expected any more: then what is not in the index is
// missing.
func (m *Master) settle() {
	if m.settled {
		return
	}
	for _, w := range m.owners {
		if w.standing == expected || w.standing == telling || w.standing == lapsed {
			return
		}
	}
	m.settled = true
}

// Renew answers an owner that asks for a lease. Authority is how long the master
// itself surely is one.
func (m *Master) Renew(now kv.Instant, r Renew, authority kv.Instant) (Answer, []Effect) {
	a := Answer{Term: m.options.Term, Seq: r.Seq}
	if r.Term > m.options.Term {
		a.Verdict = NotYet // this master is the old one, and does not know it yet
		return a, nil
	}
	if r.Term != m.options.Term {
		a.Verdict = OldTerm
		return a, nil
	}
	w := m.owners[r.Owner]
	if w != nil && w.incarnation != r.Incarnation && m.waitsFor(now, w) {
		a.Verdict = NotYet // the process that had the name before may still answer, or is the one on the roster
		return a, nil
	}
	if w == nil || w.incarnation != r.Incarnation {
		w = m.admit(w, r)
	}
	w.oldest = max(w.oldest, r.Oldest)
	var effects []Effect
	switch w.standing {
	case expected, telling:
		if w.standing == telling && now-w.since < m.options.Lease/6 {
			a.Verdict = NotYet
			break
		}
		w.standing, w.told, w.since, w.parts, w.of = telling, r.Seq, now, make(map[uint32]struct{}), 0
		m.forgetKeys(w)
		a.Verdict = Tell
	case lapsed, cleared:
		a.Verdict = NotYet
	case away:
		effects = m.reconcile(w, r, &a)
	case live:
		if length := min(m.options.Lease, authority); length > 0 {
			a.Verdict, a.Length, w.until = Granted, length, max(w.until, now+length)
		} else {
			a.Verdict = NotYet
		}
	}
	return a, effects
}

// waitsFor reports whether an owner may still answer, or is still to be heard: no
// other start of its name is let in meanwhile.
func (m *Master) waitsFor(now kv.Instant, w *member) bool {
	switch w.standing {
	case live:
		return now < w.until
	case expected, telling:
		return !m.settled && now < m.begun+m.options.Grace
	}
	return false
}

// admit takes in an owner that was not on the roster, in place of one whose memory is
// gone. What it may hold no master vouches for: it may be a start of its name that was
// given up long ago, and has forgotten to die.
func (m *Master) admit(before *member, r Renew) *member {
	if before != nil {
		m.forget(before)
	}
	w := m.join(r.Owner, r.Incarnation)
	w.standing, w.all = away, true
	m.settle()
	return w
}

// reconcile lets an owner back that was away, once it has dropped what is not its
// own any more.
func (m *Master) reconcile(w *member, r Renew, a *Answer) []Effect {
	if w.dropping != 0 && r.Dropped == w.dropping {
		if w.all {
			m.forgetKeys(w)
		}
		clear(w.given)
		w.all, w.dropping, w.standing = false, 0, cleared
		a.Verdict = NotYet
		return []Effect{{w.name, w.incarnation, false}}
	}
	if r.Seq <= w.ordered {
		a.Verdict = NotYet // heard twice, or late
		return nil
	}
	w.dropping, w.ordered = r.Seq, r.Seq
	a.Verdict, a.All = Drop, w.all
	if !w.all {
		a.Keys = slices.Sorted(maps.Keys(w.given))
	}
	return nil
}

// Tell takes a part of what an owner holds. When all have come, the next Renew is
// granted; keys that others have by now it must drop before.
func (m *Master) Tell(now kv.Instant, k Keys) error {
	w := m.owners[k.Owner]
	switch {
	case w == nil || w.incarnation != k.Incarnation || k.Term != m.options.Term:
		return ErrOldTerm
	case w.standing != telling || k.Seq != w.told:
		return fmt.Errorf("%w: the master did not ask for its keys, or asked again since", ErrSilent)
	}
	w.parts[k.Part], w.since = struct{}{}, now
	if k.Last {
		w.of = int(k.Part) + 1
	}
	w.all = w.all || len(w.keys)+len(k.Hashes) > maxKeys // more than it may have
	for _, hash := range k.Hashes {
		if other, is := m.index[hash]; is && other.member != w {
			if w.all = w.all || len(w.given) >= MaxGiven; !w.all {
				w.given[hash] = struct{}{}
			}
		} else if !w.all {
			m.take(w, hash, k.Serial)
		}
	}
	if len(w.parts) != w.of {
		return nil
	}
	w.standing, w.until = live, now+m.options.Lease // it asks for its lease next
	if w.all || len(w.given) > 0 {
		w.standing = away // as if it had been: it drops these first
	}
	m.settle()
	return nil
}

func (m *Master) take(w *member, hash, serial uint64) {
	m.index[hash] = claim{w, serial}
	w.keys[hash] = struct{}{}
}

func (m *Master) release(hash uint64) {
	if w, is := m.index[hash]; is {
		delete(w.keys, hash)
		delete(m.index, hash)
	}
}

// forgetKeys frees all keys of an owner.
func (m *Master) forgetKeys(w *member) {
	for hash := range w.keys {
		delete(m.index, hash)
	}
	clear(w.keys)
}

// forget drops an owner whose memory is gone.
func (m *Master) forget(w *member) {
	m.forgetKeys(w)
	delete(m.owners, w.name)
}

// Claim gives a key to an owner that has a lease, or says why not.
func (m *Master) Claim(now kv.Instant, c Claim) error {
	w := m.owners[c.Owner]
	switch {
	case c.Term != m.options.Term || w == nil || w.incarnation != c.Incarnation:
		return ErrOldTerm
	case w.standing != live || now >= w.until:
		return ErrSilent
	}
	w.oldest = max(w.oldest, c.Oldest)
	other, is := m.index[c.Hash]
	switch {
	case c.Serial < w.oldest:
		return fmt.Errorf("%w: claim %d was given up", ErrOldTerm, c.Serial)
	case is && other.member == w:
		m.take(w, c.Hash, max(c.Serial, other.serial)) // repeated, or its drop is on the way
		return nil
	case !is && !m.settled:
		return ErrUnsettled
	case len(w.keys) >= maxKeys:
		return fmt.Errorf("%w: %d", ErrCrowded, len(w.keys))
	case is && other.standing != away:
		return ErrTaken
	case is:
		m.giveAway(other.member, c.Hash)
	}
	m.take(w, c.Hash, c.Serial)
	return nil
}

// giveAway takes a key from an owner that is away, which must drop it before it is
// heard again.
func (m *Master) giveAway(w *member, hash uint64) {
	m.release(hash)
	w.dropping = 0 // it was not told of this one
	if len(w.given) < MaxGiven && !w.all {
		w.given[hash] = struct{}{}
	} else {
		w.all = true
	}
}

// Dropped frees keys that an owner has removed or evicted.
func (m *Master) Dropped(c Claim) error {
	w := m.owners[c.Owner]
	if c.Term != m.options.Term || w == nil || w.incarnation != c.Incarnation {
		return ErrOldTerm
	}
	w.oldest = max(w.oldest, c.Oldest)
	if at, is := m.index[c.Hash]; is && at.member == w && at.serial <= c.Serial {
		m.release(c.Hash)
	}
	return nil
}

// Knows reports whether a start of an owner is one that the master has heard of.
func (m *Master) Knows(owner string, incarnation kv.ID) bool {
	w := m.owners[owner]
	return w != nil && w.incarnation == incarnation
}

// Locate names the owner of a key.
func (m *Master) Locate(hash uint64) (owner string, err error) {
	w, is := m.index[hash]
	switch {
	case !is && !m.settled, is && w.standing != live && w.standing != away:
		return "", ErrUnsettled
	case !is || w.standing == away:
		return "", ErrMissing
	}
	return w.name, nil
}

// Remove says who has a key that is to be removed. An owner that is away loses it
// here and now.
func (m *Master) Remove(hash uint64) (owner string, err error) {
	if w, is := m.index[hash]; is && w.standing == away {
		m.giveAway(w.member, hash)
		return "", nil
	}
	return m.Locate(hash)
}

// Tick ends leases. Owners whose lease is over are to be marked, and so is who has
// not told its keys in time.
func (m *Master) Tick(now kv.Instant) (effects []Effect) {
	m.forgiveStanding(now)
	for _, name := range slices.Sorted(maps.Keys(m.owners)) {
		w := m.owners[name]
		late := (w.standing == expected || w.standing == telling) && !m.settled && now >= m.begun+m.options.Grace
		if w.standing == live && now >= w.until || late {
			if late {
				m.forgetKeys(w)
				w.all = true
			}
			w.standing, w.dropping = lapsed, 0
			effects = append(effects, Effect{w.name, w.incarnation, true})
		}
	}
	return effects
}

// forgiveStanding gives owners the time back in which this process stood still:
// they may have asked for leases that it has yet to hear of. To believe for longer
// that an owner may answer is always safe.
func (m *Master) forgiveStanding(now kv.Instant) {
	if stood := now - m.ticked; m.ticked > 0 && stood > m.options.Lease/4 {
		m.begun += stood
		for _, w := range m.owners {
			w.until += stood
		}
	}
	m.ticked = now
}

// Marked says that an effect was carried out.
func (m *Master) Marked(now kv.Instant, e Effect) {
	w := m.owners[e.Owner]
	if w == nil || w.incarnation != e.Incarnation {
		return
	}
	switch {
	case e.Away && w.standing == lapsed:
		w.standing = away
		m.settle()
	case !e.Away && w.standing == cleared:
		w.standing, w.until = live, now+m.options.Lease // it asks for its lease next
	}
}

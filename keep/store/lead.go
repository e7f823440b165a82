package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"meridian/keep/store/master"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/member/directory"
)

// masterTerm is this process's time as the master.
type masterTerm struct {
	*protocol.Coordinator
	store *Store
	term  uint64
	// marks are written by one goroutine, in the order in which they were asked for.
	marks chan protocol.Mark
	end   context.CancelFunc
	life  context.Context
	// seat is what each of them depends on: a master that was deposed writes none.
	seat directory.Guard
	// at has the revision of each mark that stands, as this master read or wrote it.
	// It belongs to the goroutine that writes.
	at map[string]directory.Revision
}

// authority is how long this process surely is the master of its term. mu is held.
func (s *Store) authority() kv.Instant {
	if s.led == nil {
		return 0
	}
	if term, left := s.election.Authority(); term == s.led.term {
		return kv.Instant(left / time.Microsecond)
	}
	return 0
}

// followElection tells the machines who the master is, and lets this process be
// one when it is elected.
func (s *Store) followElection() {
	for {
		changed := s.election.Changed()
		if leader, _ := s.election.Leader(); leader.Term > 0 {
			s.step(func(now, _ kv.Instant) []protocol.Effect {
				if s.server == nil {
					return nil
				}
				return s.server.Elected(now, leader.Member, leader.Term)
			})
		}
		term, _ := s.election.Authority()
		ready := s.lead(term)
		retry := make(<-chan struct{})
		if !ready {
			retry = s.after(electionPause)
		}
		select {
		case <-changed:
		case <-retry:
		case <-s.ctx.Done():
			s.lead(0)
			return
		}
	}
}

const (
	electionPause = 50 * time.Millisecond
	// graceLeases is for how many leases a new master waits for owners of the roster.
	// One that is not heard by then loses all it has, and a machine that stood still
	// needs a moment.
	graceLeases = 3
)

func (s *Store) after(d time.Duration) <-chan struct{} {
	passed := make(chan struct{})
	s.options.Clock.AfterFunc(d, func() { close(passed) })
	return passed
}

// lead begins a term, or ends one; 0 is none. It is false when the directory has
// not said yet whom a new master must hear.
func (s *Store) lead(term uint64) bool {
	s.mu.Lock()
	before := s.led
	s.mu.Unlock()
	if before != nil && before.term == term {
		return true
	}
	if before != nil {
		s.mu.Lock()
		s.led = nil
		s.mu.Unlock()
		before.end()
	}
	if term == 0 {
		return true
	}
	was, err := s.readPredecessors()
	if err != nil {
		s.options.Logger.Warn("elected as the master, and the directory does not say who the owners are", "error", err)
		return false
	}
	l := &masterTerm{store: s, term: term, marks: make(chan protocol.Mark, 2*maxOwners), at: was.at, seat: s.election.Seat(term)}
	l.life, l.end = context.WithCancel(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := master.New(s.now(), master.Options{Term: term, Lease: kv.Instant(s.options.Lease / time.Microsecond), Grace: kv.Instant(graceLeases * s.options.Lease / time.Microsecond)}, was.roster, was.marks)
	l.Coordinator = protocol.NewCoordinator(m, term)
	s.led = l
	s.wait.Go(l.write)
	s.wait.Go(func() { l.clear(was.idle) })
	s.counters.terms.Add(1)
	s.options.Logger.Info("this process is the master of the object cache", "term", term, "owners", len(was.roster), "away", len(was.marks))
	return true
}

// predecessorState is whom a new master must hear, and what its predecessors wrote down.
type predecessorState struct {
	roster, marks []master.Mark
	// at has the revision of each mark of an owner on the roster.
	at map[string]directory.Revision
	// idle are marks that say nothing: a start of an owner that is not on the roster, and
	// never will be again, is let in by no master before it has dropped all it has.
	idle []directory.Record
}

func (s *Store) readPredecessors() (was predecessorState, err error) {
	owners, err := s.options.Directory.List(s.ctx, rosterPrefix)
	if err != nil {
		return was, err
	}
	incarnations := make(map[string]kv.ID)
	for _, o := range s.parseOwners(owners.Records, rosterPrefix) {
		was.roster = append(was.roster, master.Mark{Owner: o.Name, Incarnation: o.Incarnation})
		incarnations[o.Name] = o.Incarnation
	}
	away, err := s.options.Directory.List(s.ctx, awayPrefix)
	if err != nil {
		return was, err
	}
	was.at = make(map[string]directory.Revision)
	for _, r := range away.Records {
		name := strings.TrimPrefix(r.Key, awayPrefix)
		incarnation, expected := incarnations[name]
		mark, err := parseMark(r)
		if expected && err != nil { // whatever it says, the owner of that name is not believed
			s.options.Logger.Warn("a mark cannot be read, and counts", "key", r.Key, "error", err)
			mark = markRecord{Owner: name, Incarnation: incarnation}
		}
		if !expected || mark.Incarnation != incarnation {
			was.idle = append(was.idle, r)
			continue
		}
		was.at[name] = r.Revision
		if !mark.Back {
			was.marks = append(was.marks, mark.Mark())
		}
	}
	return was, nil
}

// clear deletes marks that say nothing, so that they do not pile up.
func (l *masterTerm) clear(idle []directory.Record) {
	for _, r := range idle {
		if l.life.Err() != nil {
			return
		}
		_ = l.store.options.Directory.Delete(l.life, r.Key, r.Revision) // else the next master does
	}
}

// markRecord is an owner that is away, as a master writes it down.
type markRecord struct {
	Owner       string `json:"owner"`
	Incarnation kv.ID  `json:"incarnation"`
	// Term is that of the master that wrote it.
	Term uint64 `json:"term"`
	// Back says that it is not away any more; the record is about to go.
	Back bool `json:"back,omitempty"`
}

func (m markRecord) Mark() master.Mark {
	return master.Mark{Owner: m.Owner, Incarnation: m.Incarnation}
}

// parseMark reads a mark as a process that can write to the directory left it.
func parseMark(r directory.Record) (markRecord, error) {
	var m markRecord
	if len(r.Value) > maxRecord {
		return m, fmt.Errorf("store: the mark at %.80q has %d bytes", r.Key, len(r.Value))
	}
	if err := json.Unmarshal(r.Value, &m); err != nil {
		return m, fmt.Errorf("store: the mark at %.80q cannot be read: %.200w", r.Key, err)
	}
	if m.Owner == "" || len(m.Owner) > maxName || strings.TrimPrefix(r.Key, awayPrefix) != m.Owner {
		return m, fmt.Errorf("store: the mark at %.80q is of owner %.80q", r.Key, m.Owner)
	}
	return m, nil
}

// mark asks for a mark to be written. The store's mu is held.
func (l *masterTerm) mark(e protocol.Mark) (do func()) {
	if l == nil {
		return nil
	}
	return func() {
		select {
		case l.marks <- e:
		case <-l.life.Done():
		}
	}
}

// write writes marks, each until it is written or this term is over. One that cannot
// be written keeps no other owner's waiting.
func (l *masterTerm) write() {
	var pending []protocol.Mark
	for {
		var retry <-chan struct{}
		if len(pending) > 0 {
			retry = l.store.after(markPause)
		}
		select {
		case e := <-l.marks:
			pending = append(pending, e)
		case <-retry:
		case <-l.life.Done():
			return
		}
		failed := make(map[string]bool) // of one owner, the next waits for the one before
		pending = slices.DeleteFunc(pending, func(e protocol.Mark) bool {
			written := !failed[e.Owner] && l.writeOne(e)
			failed[e.Owner] = !written
			return written
		})
	}
}

const markPause = 100 * time.Millisecond

// writeOne tries once, and reports whether there is nothing left to try.
func (l *masterTerm) writeOne(e protocol.Mark) bool {
	err := l.put(e)
	switch {
	case errors.Is(err, directory.ErrDeposed):
		return true
	case err != nil:
		l.store.options.Logger.Warn("a mark of an owner is not written yet", "owner", e.Owner, "away", e.Away, "error", err)
		return false
	}
	l.store.step(func(now, _ kv.Instant) []protocol.Effect {
		if l.store.led == l {
			l.Marked(now, e)
		}
		return nil
	})
	return true
}

// put writes that an owner is away, or back. A mark of an owner that is back says
// nothing to a master, and goes.
func (l *masterTerm) put(e protocol.Mark) error {
	if !e.Away && l.at[e.Owner] == 0 {
		return nil
	}
	value, err := json.Marshal(markRecord{e.Owner, e.Incarnation, l.term, !e.Away})
	if err != nil {
		return err
	}
	entry := directory.Entry{Key: awayPrefix + e.Owner, Value: value, While: l.seat}
	d := l.store.options.Directory
	var written directory.Record
	if at := l.at[e.Owner]; at != 0 {
		written, err = d.Swap(l.life, entry, at)
	} else {
		written, err = d.Create(l.life, entry)
	}
	switch {
	case errors.Is(err, directory.ErrExists) || errors.Is(err, directory.ErrChanged):
		// Its own, whose writing was in doubt: while it has its seat there is no other's.
		if l.at[e.Owner] = written.Revision; written.Key == "" {
			delete(l.at, e.Owner)
		}
		return err
	case err != nil:
		return err
	}
	l.at[e.Owner] = written.Revision
	if !e.Away && d.Delete(l.life, entry.Key, written.Revision) == nil { // else it stays, until its owner is away again
		delete(l.at, e.Owner)
	}
	return nil
}

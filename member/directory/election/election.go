// Package election lets one process of a cell lead, and all of them know which.
//
//	          Grant, Create              answered
//	follows ────────────────► stands ───────────────► leads, in a term
//	   ▲                        │ exists, no answer      │ the lease is lost, the
//	   │                        ▼                        │ record is another's, Close
//	   └──────────── Revoke, a pause ◄───────────────────┘
//
// Who leads holds one record of the directory under a lease that it surrenders.
// The record's revision is the term, so that a later leader's is higher. The
// leader has authority only while its lease is alive for certain, by its own
// clock and less a margin: the directory lets no other in before that is
// over, so at no moment do two have authority, however long a process stands
// still. A leader that cannot reach the directory loses its authority, then
// maybe its term.
//
// An outage of the directory means unknown, not dead: who led before is who is
// known to lead. The promise is as good as the directory's memory: one that lost
// its data lets the next leader in while the last may still have authority, and
// counts terms from the beginning.
package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"meridian/internal/join"
	"meridian/kv"
	"meridian/member/directory"
)

// Options configures Open.
type Options struct {
	Directory directory.Directory
	// Key names what is led: a key of the directory, under which the record stands.
	Key string
	// Self is who campaigns. The zero member only follows.
	Self kv.Member
	// TTL is how long a leader that fell silent is in the way; default
	// directory.DefaultTTL. The directory may grant longer.
	TTL time.Duration
	// Clock is the one of Directory; nil: directory.WallClock.
	Clock  directory.Clock
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Directory == nil:
		return o, errors.New("election: Options needs a Directory")
	case o.TTL < 0:
		return o, fmt.Errorf("election: a leader's time of %v", o.TTL)
	case len(o.Self.Name) > maxName || o.Self.Name == "" && o.Self != (kv.Member{}):
		return o, fmt.Errorf("election: a candidate's name has 1 to %d bytes, not %d", maxName, len(o.Self.Name))
	}
	if err := directory.CheckKey(recordKey(o.Key)); err != nil {
		return o, err
	}
	o.TTL = cmp.Or(o.TTL, directory.DefaultTTL)
	o.Clock = cmp.Or[directory.Clock](o.Clock, directory.WallClock{})
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o, nil
}

const (
	// driftPart is the part of a lease's time that is not counted on, so that
	// this clock may run a fiftieth slower than the directory's.
	driftPart = 50
	// pausePart is the part of a leader's time between two attempts to be one.
	pausePart = 10
)

// Election is an open election. Its methods may be called from several goroutines.
type Election struct {
	options Options
	watch   *directory.Watch
	wait    sync.WaitGroup // the follower and the candidate
	life    context.Context
	end     context.CancelFunc

	mu      sync.Mutex    // protects the rest
	changed chan struct{} // closed by the next change
	known   bool          // the directory confirms leader
	leader  Leader
	seen    directory.Revision // of the directory, when it was last heard of
	stands  directory.Revision // of the record that stood then; 0: none
	term    directory.Revision // in which this process leads; 0: it does not
	lease   *directory.Lease   // of that term
	deposed chan struct{}      // closed when that term ends by another's hand
}

// Open begins to follow and, with a Self, to campaign. It does not wait for the
// directory.
func Open(_ context.Context, o Options) (*Election, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Election{options: o, changed: make(chan struct{})}
	e.life, e.end = context.WithCancel(context.Background()) // Close ends it, not the caller of Open
	if e.watch, err = o.Directory.Watch(e.life, o.Key+"/", 0); err != nil {
		e.end()
		return nil, err
	}
	e.wait.Go(e.follow)
	if o.Self != (kv.Member{}) {
		e.wait.Go(e.campaign)
	}
	return e, nil
}

// Leader is who leads as far as the directory has said; the zero Leader, while
// no member does. It is not known before the first answer and while the directory
// is away: then it is who led last.
func (e *Election) Leader() (l Leader, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leader, e.known
}

// Authority is the term in which this process leads, and for how long from the
// moment of the call no other member can have authority. Who acts on it later counts
// from before the call. A leader whose time is 0 may get its authority back in the
// same term; term 0 means that it does not lead.
func (e *Election) Authority() (term uint64, left time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lease == nil {
		return 0, 0
	}
	return uint64(e.term), max(0, e.lease.Certain()-e.lease.TTL()/driftPart)
}

// Seat is what a leader's writes depend on, so that none counts that comes after its
// term.
func (e *Election) Seat(term uint64) directory.Guard {
	return directory.Guard{Key: recordKey(e.options.Key), Revision: directory.Revision(term)}
}

// Changed is closed by the next change of what Leader says, or of the term that
// Authority does. Who takes it before asking misses none.
func (e *Election) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// signal needs mu.
func (e *Election) signal() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Close gives up what this process leads, so that another can at once, and waits
// for everything that was started. The directory is closed after it. After an
// error it may be called again.
func (e *Election) Close(ctx context.Context) error {
	e.end()
	return join.Within(ctx, "election: closing", e.wait.Wait)
}

// Package directory is the directory: who exists, and how to reach them. It holds
// small records under leases; what the bytes mean is their owner's business.
//
//	consumer ──► Directory ──► Backend ──► memdir: this process
//	              │ checks keys, bounds waits, names errors
//	              │ Lease: keeps itself alive, puts its records back
//	              └ Watch: resumes, resynchronises, never skips a deletion
//
// Alcoves bring a Backend, which only reads, writes and streams; everything a
// consumer relies on is written once, here, and held by one suite, directorytest.
//
// A lease:
//
//	        renewed                              ┌─ same id ──► Held
//	Held ──────────► Held    no answer ► Doubtful┤
//	 │ expired                                   └─ expired ──┐
//	 └────────────────────────────────────────────────────────┤
//	                    Restore: new id, records put back ──► Held
//	                    Surrender, or a key taken meanwhile ► Lost
//	Revoke ► Revoked: the records are gone before it returns
//
// A watch: Resync (all there is), then Put and Delete in the order of their
// revisions. An outage of the directory means unknown, not dead: the watcher
// hears Unavailable, keeps what it knows, and later hears Available with all
// there is.
//
// A call that failed with ErrUnavailable, or whose context ended, is in doubt:
// a write may or may not have been applied.
package directory

import (
	"context"
	"time"
)

// Revision counts the changes of a whole directory; every change gets the next.
type Revision int64

// What a Change demands of the record it replaces, besides an exact revision.
const (
	// Any takes whatever stands there.
	Any Revision = 0
	// Absent demands that there is no record.
	Absent Revision = -1
)

// LeaseID names a lease within a directory; 0 is none.
type LeaseID int64

// Record is what the directory holds under a key. The caller owns Value.
type Record struct {
	Key      string
	Value    []byte
	Revision Revision // of its last change
	Lease    LeaseID  // it vanishes with this lease; 0: it stays until deleted
}

// Entry is what a caller writes. Value is copied before the call returns.
type Entry struct {
	Key   string
	Value []byte
	Lease *Lease // nil: the record stays until deleted
	// While demands that another record stands as it was when this is written, in the
	// same step: so that a leader whose term is over writes nothing. Else: ErrDeposed.
	// Not for what has a lease.
	While Guard
}

// Guard is a record that another depends on: its key, and the revision that it
// must have. The zero value demands nothing.
type Guard struct {
	Key      string
	Revision Revision
}

// Snapshot is every record under a prefix as of one revision, sorted by key.
type Snapshot struct {
	Records  []Record
	Revision Revision
}

// Directory is what the rooms see. All methods may be called at any time from
// any goroutine; every one returns when its context ends, and none waits
// longer than the directory's call timeout for an answer.
type Directory interface {
	// Get returns the record at key, or ErrNotFound.
	Get(ctx context.Context, key string) (Record, error)
	// List returns what is under prefix: "" for everything, else whole
	// segments ending in a slash.
	List(ctx context.Context, prefix string) (Snapshot, error)

	// Create writes a record where there is none. With ErrExists comes the
	// record that stands there instead.
	Create(ctx context.Context, e Entry) (Record, error)
	// Put writes a record, whatever stands there.
	Put(ctx context.Context, e Entry) (Record, error)
	// Swap replaces the record of exactly that revision. With ErrChanged comes
	// the record that stands there now; none, if it was deleted.
	Swap(ctx context.Context, e Entry, at Revision) (Record, error)
	// Delete removes the record of exactly that revision, or of Any.
	Delete(ctx context.Context, key string, at Revision) error

	// Grant opens a lease that keeps itself alive until it is revoked.
	Grant(ctx context.Context, o LeaseOptions) (*Lease, error)
	// Watch follows the records under prefix until ctx ends, the watch is
	// closed or the directory is. With after 0 it begins with a Resync of all
	// there is; else with the first change after that revision, or with a
	// Resync where the directory no longer remembers so far back.
	Watch(ctx context.Context, prefix string, after Revision) (*Watch, error)

	Metrics() Metrics
	// Close revokes the leases that are left, ends the watches and waits for
	// everything it started.
	Close(ctx context.Context) error
}

// Backend is what an alcove brings. Keys, prefixes and values reach it
// checked, every context has a deadline but Watch's, and errors are the
// sentinels of this package or reasons of its own.
type Backend interface {
	// Get returns ErrNotFound when there is no record.
	Get(ctx context.Context, key string) (Record, error)
	List(ctx context.Context, prefix string) (Snapshot, error)
	// Write applies a change and returns the record as written. With ErrExists
	// or ErrChanged it returns the record that stands there instead; with
	// ErrLeaseLost the lease does not exist; with ErrDeposed another record does not
	// stand as the change demands.
	Write(ctx context.Context, c Change) (Record, error)
	// Watch hands every change after a revision to emit, in order, whole
	// revisions at a time, until ctx ends, emit fails, or it cannot go on:
	// ErrCompacted when the directory does not remember that revision or has
	// not reached it, ErrUnavailable within seconds of the directory going
	// away or being replaced by another. It always returns an error.
	Watch(ctx context.Context, prefix string, after Revision, emit func([]Event) error) error
	// Grant returns the lease and the time it was granted for, which may be
	// longer than asked.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, time.Duration, error)
	// Renew starts the lease's time anew, or returns ErrLeaseLost.
	Renew(ctx context.Context, id LeaseID) (time.Duration, error)
	// Revoke ends a lease and deletes its records in one revision.
	Revoke(ctx context.Context, id LeaseID) error
	Close(ctx context.Context) error
}

// Change is one write as a Backend sees it.
type Change struct {
	Key    string
	Value  []byte // borrowed for the call
	Lease  LeaseID
	Delete bool     // ErrNotFound when there is no record
	At     Revision // Any, Absent, or exactly that revision
	While  Guard    // else ErrDeposed, whatever At says
}

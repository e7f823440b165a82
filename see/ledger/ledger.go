// Package ledger keeps bounded records of requests, so that one can be
// explained afterwards: in memory the latest, on disk a little more. Records
// hold ids, times and reasons, and no text of any prompt or answer. Of what
// clients and engines wrote, they hold 1 KiB a word. A File is the part on disk,
// for records of any kind.
//
//	Add ─► ring ─► Find, Latest                          (this process)
//	   └─► File ─► queue ─► writer ─► requests.jsonl     (FindIn, any process)
//	                                  requests.jsonl.1   the file before it
//
// Adding never waits: a disk that does not keep up costs records on disk, which
// are counted, and nothing else. A line that a crash has torn, or that is longer
// than a record, is passed over.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"
)

// FileName is where a state directory keeps the records of requests.
const FileName = "requests.jsonl"

// Options configures Open.
type Options struct {
	// Dir is a state directory; empty keeps records in memory only.
	Dir string
	// Records is how many are kept in memory; 0 means 4096.
	Records int
	// FileBytes is how large a file may grow before the next one begins; two
	// are kept. 0 means 8 MiB.
	FileBytes int64
	// Flush is how long a record may stay in a buffer; 0 means 100 ms.
	Flush  time.Duration
	Logger *slog.Logger
}

// Ledger is open. Its methods may be called from any goroutine.
type Ledger struct {
	file *File // nil in memory only

	mu    sync.Mutex // protects what follows
	ring  []*Record
	next  int
	added uint64 // ever
	byID  map[string]*Record
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Open starts a ledger; what earlier ones wrote stays.
func Open(o Options) (*Ledger, error) {
	orDefault(&o.Records, 4096)
	if o.Records < 1 {
		return nil, fmt.Errorf("ledger: %d records: there must be some", o.Records)
	}
	l := &Ledger{ring: make([]*Record, o.Records), byID: make(map[string]*Record)}
	if o.Dir == "" {
		return l, nil
	}
	var err error
	l.file, err = OpenFile(FileOptions{Path: filepath.Join(o.Dir, FileName), Bytes: o.FileBytes, Flush: o.Flush, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Add keeps a record, bounded: a copy, so that what was cut off is free.
func (l *Ledger) Add(r *Record) {
	r = r.bounded()
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.ring[l.next]; old != nil && l.byID[old.ID] == old {
		delete(l.byID, old.ID)
	}
	l.ring[l.next], l.byID[r.ID] = r, r
	l.next = (l.next + 1) % len(l.ring)
	l.added++
	if l.file != nil {
		l.file.Add(r)
	}
}

// ErrNoRecord means that a request is not, or no longer, known.
var ErrNoRecord = errors.New("ledger: there is no record of this request")

// Find returns the record of a request that is still in memory.
func (l *Ledger) Find(id string) (*Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.byID[id]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrNoRecord, id)
}

// Latest returns up to n records, the newest first.
func (l *Ledger) Latest(n int) []*Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var records []*Record
	for i := range l.ring {
		r := l.ring[(l.next-1-i+2*len(l.ring))%len(l.ring)]
		if r == nil || len(records) == n {
			break
		}
		records = append(records, r)
	}
	return records
}

// Since returns up to n records in the order in which they were added, from
// number after on, or from the oldest that is still in memory; next is the
// number of the one that follows. Who asks again with it misses none, unless
// more were added meanwhile than the ledger keeps: then the first of them has
// another number than was asked for. The first record ever has number 0.
func (l *Ledger) Since(after uint64, n int) (records []*Record, first, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := l.added - min(l.added, uint64(len(l.ring)))
	first = min(max(after, oldest), l.added)
	next = min(first+uint64(max(n, 0)), l.added)
	for i := first; i < next; i++ {
		records = append(records, l.ring[i%uint64(len(l.ring))])
	}
	return records, first, next
}

// Dropped counts records that are not on disk, because it did not keep up or
// could not be written to.
func (l *Ledger) Dropped() uint64 {
	if l.file == nil {
		return 0
	}
	return l.file.Dropped()
}

// Close writes what is left.
func (l *Ledger) Close(ctx context.Context) error {
	if l.file == nil {
		return nil
	}
	return l.file.Close(ctx)
}

// Package ledger keeps bounded records of requests, so that one can be
// explained afterwards: in memory the latest, on disk a little more. Records
// hold ids, times and reasons, and no text of any prompt or answer. Of what
// clients and engines wrote, they hold 1 KiB a word. A File is the part on disk,
// for records of any kind, and a Log both parts of records of one kind.
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
	*Log[Record]

	mu   sync.Mutex // protects what follows, and the order of what is added
	byID map[string]*Record
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
	file := FileOptions{Bytes: o.FileBytes, Flush: o.Flush, Logger: o.Logger}
	if o.Dir != "" {
		file.Path = filepath.Join(o.Dir, FileName)
	}
	log, err := OpenLog[Record](o.Records, file)
	if err != nil {
		return nil, err
	}
	return &Ledger{Log: log, byID: make(map[string]*Record)}, nil
}

// Add keeps a record, bounded: a copy, so that what was cut off is free.
func (l *Ledger) Add(r *Record) {
	r = r.bounded()
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.Keep(r); old != nil && l.byID[old.ID] == old {
		delete(l.byID, old.ID)
	}
	l.byID[r.ID] = r
	l.Write(r)
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

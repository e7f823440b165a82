// Package ledger keeps bounded records of requests, so that one can be
// explained afterwards: in memory the latest, on disk a little more. Records
// hold ids, times and reasons, and no text of any prompt or answer. Of what
// clients and engines wrote, they hold 1 KiB a word.
//
//	Add ─► ring ──────────► Find, Latest       (this process)
//	   └─► queue ─► writer ─► requests.jsonl    (Find in a state directory, any process)
//	                          requests.jsonl.1  the file before it
//
// Adding never waits: a disk that does not keep up costs records on disk, which
// are counted, and nothing else. A line that a crash has torn, or that is longer
// than a record, is passed over.
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	options Options
	queue   chan *Record
	done    chan struct{}
	dropped atomic.Uint64

	mu     sync.Mutex // protects what follows
	ring   []*Record
	next   int
	added  uint64 // ever
	byID   map[string]*Record
	closed bool
}

// queueLength is how many records may wait for the disk.
const queueLength = 1024

// Open starts a ledger; what earlier ones wrote stays.
func Open(o Options) (*Ledger, error) {
	if o.Records == 0 {
		o.Records = 4096
	}
	if o.FileBytes == 0 {
		o.FileBytes = 8 << 20
	}
	if o.Flush == 0 {
		o.Flush = 100 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Records < 1 || o.FileBytes < 1 {
		return nil, fmt.Errorf("ledger: %d records and %d bytes: both must be positive", o.Records, o.FileBytes)
	}
	l := &Ledger{
		options: o, ring: make([]*Record, o.Records), byID: make(map[string]*Record),
		queue: make(chan *Record, queueLength), done: make(chan struct{}),
	}
	w := &writer{options: o, dropped: &l.dropped}
	if o.Dir != "" {
		if err := w.open(); err != nil {
			return nil, err
		}
	}
	go func() {
		defer close(l.done)
		w.run(l.queue)
	}()
	return l, nil
}

// Add keeps a record, bounded: a copy, so that what was cut off is free.
func (l *Ledger) Add(r *Record) {
	r = r.bounded()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if old := l.ring[l.next]; old != nil && l.byID[old.ID] == old {
		delete(l.byID, old.ID)
	}
	l.ring[l.next], l.byID[r.ID] = r, r
	l.next = (l.next + 1) % len(l.ring)
	l.added++
	select {
	case l.queue <- r:
	default:
		l.dropped.Add(1)
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
func (l *Ledger) Dropped() uint64 { return l.dropped.Load() }

// Close writes what is left.
func (l *Ledger) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ledger: close: %w", ctx.Err())
	}
}

// path of the file that is n files old.
func path(dir string, n int) string {
	name := filepath.Join(dir, FileName)
	if n > 0 {
		name = fmt.Sprintf("%s.%d", name, n)
	}
	return name
}

// writer is the ledger's goroutine: it alone touches the file.
type writer struct {
	options Options
	file    *os.File
	size    int64
	buffer  []byte
	records uint64 // in buffer
	failing bool
	dropped *atomic.Uint64 // the ledger's
}

const fileMode = 0o600 // ids of requests are nobody else's business

func (w *writer) open() error {
	file, err := os.OpenFile(path(w.options.Dir, 0), os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("ledger: %w", err), file.Close())
	}
	w.file, w.size = file, info.Size()
	if w.size == 0 {
		return nil
	}
	// A line that a crash has torn ends here, so that the next is whole.
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, w.size-1); err == nil && last[0] != '\n' {
		w.buffer = append(w.buffer, '\n')
	}
	return nil
}

func (w *writer) run(queue <-chan *Record) {
	flush := time.NewTimer(w.options.Flush)
	flush.Stop()
	defer flush.Stop()
	for {
		select {
		case r, open := <-queue:
			if !open {
				w.flush()
				if w.file != nil {
					_ = w.file.Close() // what could be written has been
				}
				return
			}
			if len(w.buffer) == 0 {
				flush.Reset(w.options.Flush)
			}
			w.append(r)
		case <-flush.C:
			w.flush()
		}
	}
}

const bufferBytes = 64 << 10

func (w *writer) append(r *Record) {
	if w.options.Dir == "" {
		return
	}
	line, err := json.Marshal(r)
	if err != nil {
		w.complain(err, 1)
		return
	}
	w.buffer = append(append(w.buffer, line...), '\n')
	w.records++
	if int64(len(w.buffer)) >= min(bufferBytes, w.options.FileBytes/2) { // no more than fits a file
		w.flush()
	}
}

// flush writes the buffer, into a new file where the old one is full.
func (w *writer) flush() {
	if len(w.buffer) == 0 || w.options.Dir == "" {
		return
	}
	defer func() { w.buffer, w.records = w.buffer[:0], 0 }()
	if w.size > 0 && w.size+int64(len(w.buffer)) > w.options.FileBytes {
		if err := w.rotate(); err != nil {
			w.complain(err, w.records)
			return
		}
	}
	n, err := w.file.Write(w.buffer)
	w.size += int64(n)
	if err != nil {
		w.complain(err, w.records)
		return
	}
	w.failing = false
}

func (w *writer) rotate() error {
	if err := os.Rename(path(w.options.Dir, 0), path(w.options.Dir, 1)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	old := w.file
	kept := w.buffer
	if err := w.open(); err != nil {
		w.file = old
		return err
	}
	w.buffer = kept
	return old.Close()
}

// complain counts the records that are lost, and says once that some are.
func (w *writer) complain(err error, lost uint64) {
	w.dropped.Add(lost)
	if !w.failing {
		w.options.Logger.Warn("records of requests cannot be written; requests are served all the same", "error", err)
	}
	w.failing = true
}

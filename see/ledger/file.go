package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// FileOptions configures OpenFile.
type FileOptions struct {
	// Path of the file; the one before it is there too, with .1 behind its name.
	Path string
	// Bytes is how large a file may grow before the next one begins; 0 means
	// 8 MiB.
	Bytes int64
	// Flush is how long a record may stay in a buffer; 0 means 100 ms.
	Flush  time.Duration
	Logger *slog.Logger
}

// File is records on disk, a line of JSON each, in two files of bounded size. Its
// methods may be called from any goroutine.
type File struct {
	queue   chan any
	done    chan struct{}
	dropped atomic.Uint64

	mu     sync.Mutex // protects closed, and queue from being closed under Add
	closed bool
}

// queueLength is how many records may wait for the disk.
const queueLength = 1024

// OpenFile goes on where an earlier process stopped.
func OpenFile(o FileOptions) (*File, error) {
	orDefault(&o.Bytes, 8<<20)
	orDefault(&o.Flush, 100*time.Millisecond)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Bytes < 1 {
		return nil, fmt.Errorf("ledger: files of %d bytes: there must be some", o.Bytes)
	}
	f := &File{queue: make(chan any, queueLength), done: make(chan struct{})}
	w := &writer{options: o, dropped: &f.dropped}
	if err := w.open(); err != nil {
		return nil, err
	}
	go func() {
		defer close(f.done)
		w.run(f.queue)
	}()
	return f, nil
}

// Add writes a record, which no goroutine changes any more. It does not wait:
// where the disk does not keep up, the record is dropped and counted.
func (f *File) Add(record any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	select {
	case f.queue <- record:
	default:
		f.dropped.Add(1)
	}
}

// Dropped counts records that are not on disk, because it did not keep up or
// could not be written to.
func (f *File) Dropped() uint64 { return f.dropped.Load() }

// Close writes what is left.
func (f *File) Close(ctx context.Context) error {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.queue)
	}
	f.mu.Unlock()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ledger: close: %w", ctx.Err())
	}
}

// aged is the file before path, n files ago.
func aged(path string, n int) string {
	if n > 0 {
		path = fmt.Sprintf("%s.%d", path, n)
	}
	return path
}

// writer is the file's goroutine: it alone touches the file.
type writer struct {
	options FileOptions
	file    *os.File
	size    int64
	buffer  []byte
	records uint64 // in buffer
	failing bool
	dropped *atomic.Uint64 // the file's
}

const fileMode = 0o600 // ids of requests are for the operator alone

func (w *writer) open() error {
	file, err := os.OpenFile(w.options.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode)
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

func (w *writer) run(queue <-chan any) {
	flush := time.NewTimer(w.options.Flush)
	flush.Stop()
	defer flush.Stop()
	for {
		select {
		case r, open := <-queue:
			if !open {
				w.flush()
				_ = w.file.Close() // what could be written has been
				return
			}
			if w.records == 0 {
				flush.Reset(w.options.Flush)
			}
			w.append(r)
		case <-flush.C:
			w.flush()
		}
	}
}

const bufferBytes = 64 << 10

func (w *writer) append(record any) {
	line, err := json.Marshal(record)
	if err != nil {
		w.complain(err, 1)
		return
	}
	w.buffer = append(append(w.buffer, line...), '\n')
	w.records++
	if int64(len(w.buffer)) >= min(bufferBytes, w.options.Bytes/2) { // no more than fits a file
		w.flush()
	}
}

// flush writes the buffer, into a new file where the old one is full.
func (w *writer) flush() {
	if len(w.buffer) == 0 {
		return
	}
	defer func() { w.buffer, w.records = w.buffer[:0], 0 }()
	if w.size > 0 && w.size+int64(len(w.buffer)) > w.options.Bytes {
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
	if err := os.Rename(w.options.Path, aged(w.options.Path, 1)); err != nil && !errors.Is(err, os.ErrNotExist) {
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
		w.options.Logger.Warn("records cannot be written; everything is served all the same", "file", w.options.Path, "error", err)
	}
	w.failing = true
}

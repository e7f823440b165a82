package ledger

import (
	"context"
	"sync"
)

// Log keeps records of one kind, numbered from 0 in the order in which they came: the latest
// in memory, and those that are written down in a File. Its methods may be called from any
// goroutine.
type Log[T any] struct {
	most int   // in memory
	file *File // nil in memory only

	mu    sync.Mutex // protects what follows
	kept  []*T
	added uint64 // ever
}

// OpenLog keeps so many records in memory, and where o has a path a file of them.
func OpenLog[T any](most int, o FileOptions) (*Log[T], error) {
	l := &Log[T]{most: most}
	if o.Path == "" {
		return l, nil
	}
	var err error
	if l.file, err = OpenFile(o); err != nil {
		return nil, err
	}
	return l, nil
}

// Keep has a record in memory, and returns the one whose place it takes, if any.
func (l *Log[T]) Keep(r *T) (gone *T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kept) < l.most {
		l.kept = append(l.kept, r)
	} else {
		place := &l.kept[l.added%uint64(l.most)]
		gone, *place = *place, r
	}
	l.added++
	return gone
}

// Write puts a record, which no goroutine changes any more, on disk, and does not wait.
func (l *Log[T]) Write(r *T) {
	if l.file != nil {
		l.file.Add(r)
	}
}

// Latest returns up to n records, the newest first.
func (l *Log[T]) Latest(n int) (records []*T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range uint64(min(max(n, 0), len(l.kept))) {
		records = append(records, l.kept[(l.added-1-i)%uint64(l.most)])
	}
	return records
}

// Since returns up to n records in the order in which they were added, from
// number after on, or from the oldest that is still in memory; next is the
// number of the one that follows. Who asks again with it misses none, unless
// more were added meanwhile than the log keeps: then the first of them has
// another number than was asked for. The first record ever has number 0.
func (l *Log[T]) Since(after uint64, n int) (records []*T, first, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = min(max(after, l.added-uint64(len(l.kept))), l.added)
	next = min(first+uint64(max(n, 0)), l.added)
	for i := first; i < next; i++ {
		records = append(records, l.kept[i%uint64(l.most)])
	}
	return records, first, next
}

// Dropped counts records that are not on disk, because it did not keep up or
// could not be written to.
func (l *Log[T]) Dropped() uint64 {
	if l.file == nil {
		return 0
	}
	return l.file.Dropped()
}

// Close writes what is left. A log that could not be opened has nothing.
func (l *Log[T]) Close(ctx context.Context) error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close(ctx)
}

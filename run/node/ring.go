package node

import "sync"

// ringRecords is how many records of a kind can be asked for by number; agents keep
// more of what is asked for by its id.
const ringRecords = 1024

// ring keeps the last records of a kind, numbered from 0 in the order in which they
// came.
type ring[T any] struct {
	mu    sync.Mutex // protects all
	kept  []*T
	added uint64
}

func (r *ring[T]) add(record *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) < ringRecords {
		r.kept = append(r.kept, record)
	} else {
		r.kept[r.added%ringRecords] = record
	}
	r.added++
}

// since returns what is kept from a number on; first is that of the first of them,
// and end one more than the last has.
func (r *ring[T]) since(number uint64) (records []*T, first, end uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = min(max(number, r.added-uint64(len(r.kept))), r.added)
	for n := first; n < r.added; n++ {
		records = append(records, r.kept[n%ringRecords])
	}
	return records, first, r.added
}

package agent

import (
	"fmt"
	"slices"
	"sync"

	"meridian/kv"
)

// transferLog keeps every transfer that runs, and the last so many that ended.
type transferLog struct {
	mu   sync.Mutex // protects the rest, and Transfer.refused; comes before a transfer's
	byID map[kv.ID]*Transfer
	ring []*Transfer // ended, the oldest at next
	next int
}

func newTransferLog(size int) *transferLog {
	return &transferLog{ring: make([]*Transfer, size), byID: make(map[kv.ID]*Transfer)}
}

// add adds a transfer, unless its id has one already, which it returns.
func (l *transferLog) add(t *Transfer) *Transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if standing := l.byID[t.ID]; standing != nil && !standing.refused {
		return standing
	}
	l.byID[t.ID] = t
	return t
}

// refuse frees the id of a transfer that Post refused; its record stays until
// the id is posted again.
func (l *transferLog) refuse(t *Transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.refused = true
}

// ended lets the transfer that ended longest ago go, in favour of t.
func (l *transferLog) ended(t *Transfer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.ring[l.next]; old != nil && l.byID[old.ID] == old {
		delete(l.byID, old.ID)
	}
	l.ring[l.next] = t
	l.next = (l.next + 1) % len(l.ring)
}

func (l *transferLog) transfer(id kv.ID) *Transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id]
}

func (l *transferLog) records() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Record, 0, len(l.byID))
	for _, t := range l.byID {
		all = append(all, t.Record())
	}
	slices.SortFunc(all, func(x, y Record) int { return x.Times.Posted.Compare(y.Times.Posted) })
	return all
}

// Explain finds a transfer by id: one that runs, or one of the last
// Options.Records that have ended.
func (a *Agent) Explain(id kv.ID) (Record, error) {
	if t := a.log.transfer(id); t != nil {
		return t.Record(), nil
	}
	return Record{}, fmt.Errorf("agent: no record of transfer %s; the last %d are kept", id, a.options.Records)
}

// Transfers returns the records that are kept, oldest first.
func (a *Agent) Transfers() []Record { return a.log.records() }

package transceiver

import (
	"fmt"

	"meridian/kv"
	"meridian/transceiver/handoff"
)

// ring keeps the records of the last so many hand-offs.
type ring struct {
	entries []*handoff.Record
	next    int
}

func newRing(size int) *ring { return &ring{entries: make([]*handoff.Record, size)} }

func (r *ring) add(record *handoff.Record) {
	r.entries[r.next] = record
	r.next = (r.next + 1) % len(r.entries)
}

// Records returns what is kept of hand-offs that have ended, oldest first.
func (t *Transceiver) Records() []handoff.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []handoff.Record
	for i := range t.records.entries {
		if r := t.records.entries[(t.records.next+i)%len(t.records.entries)]; r != nil {
			all = append(all, *r)
		}
	}
	return all
}

// Explain finds what is kept of a hand-off: one record for each side of it that
// this agent was home of.
func (t *Transceiver) Explain(transfer kv.ID) ([]handoff.Record, error) {
	var found []handoff.Record
	for _, r := range t.Records() {
		if r.Transfer == transfer {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("transceiver: no record of hand-off %s; the last %d that ended are kept", transfer, t.options.Records)
	}
	return found, nil
}

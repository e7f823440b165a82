package transceiver

import (
	"cmp"
	"fmt"
	"slices"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

// records keeps the last hand-offs that ended, oldest first: so many, and with so
// many flows in all, because a peer's ranks decide how many one has. Those of
// object caches are kept apart, so that prompts that are kept and found do not push hand-offs out.
type records struct {
	most    int
	entries []*handoff.Record
	flows   int
}

const maxRecordedFlows = 1 << 18

func (r *records) add(record *handoff.Record) {
	r.entries = append(r.entries, record)
	r.flows += len(record.Flows)
	for len(r.entries) > r.most || r.flows > maxRecordedFlows && len(r.entries) > 1 {
		r.flows -= len(r.entries[0].Flows)
		r.entries[0] = nil
		r.entries = r.entries[1:]
	}
}

// Records returns what is kept of hand-offs that have ended, oldest first.
func (t *Transceiver) Records() []handoff.Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []handoff.Record
	for _, r := range slices.Concat(t.records.entries, t.stored.entries) {
		all = append(all, *r)
	}
	slices.SortStableFunc(all, func(a, b handoff.Record) int { return cmp.Compare(a.EndedUnixUs, b.EndedUnixUs) })
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
		return nil, fmt.Errorf("transceiver: no record of hand-off %s; the last %d that ended are kept, fewer of engines with many ranks", transfer, t.options.Records)
	}
	return found, nil
}

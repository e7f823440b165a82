package transceiver

import (
	"testing"

	"meridian/kv"
	"meridian/move/transceiver/handoff"
)

// Records are kept by number, and fewer of hand-offs with very many flows.
func TestRecordsAreBounded(t *testing.T) {
	r := records{most: 3}
	for i := range byte(5) {
		r.add(&handoff.Record{Transfer: kv.ID{i}, Flows: make([]handoff.FlowRecord, 10)})
	}
	if len(r.entries) != 3 || r.entries[0].Transfer != (kv.ID{2}) || r.flows != 30 {
		t.Errorf("%d records, %d flows, the oldest is %v", len(r.entries), r.flows, r.entries[0].Transfer)
	}
	for i := range byte(2) {
		r.add(&handoff.Record{Transfer: kv.ID{9, i}, Flows: make([]handoff.FlowRecord, maxRecordedFlows)})
	}
	if len(r.entries) != 1 || r.entries[0].Transfer != (kv.ID{9, 1}) || r.flows != maxRecordedFlows {
		t.Errorf("%d records with %d flows are left", len(r.entries), r.flows)
	}
}

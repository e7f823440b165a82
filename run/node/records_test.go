package node

import (
	"path/filepath"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/fabric"
	"meridian/move/transceiver/handoff"
)

// A transfer is explained after its agent has gone; one that comes for a question
// leaves no files.
func TestTransfersOutliveTheirAgent(t *testing.T) {
	for hasDoor, files := range map[bool]int{true: 3, false: 0} {
		dir := filepath.Join(t.TempDir(), "state")
		o := AgentOptions{Name: "a", StateDir: dir, Listen: "127.0.0.1:0"}
		if hasDoor {
			o.Door = &Door{}
		}
		o.NoDirectory = true
		n, err := OpenAgent(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		id := loop(t, n)
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		record, err := TransferIn(dir, id)
		if err != nil || (record != nil) != hasDoor {
			t.Fatalf("door %v: %v, %v", hasDoor, record, err)
		}
		if hasDoor && (record.ID != id || record.State != fabric.Done || record.Bytes != 100) {
			t.Errorf("%+v", record)
		}
		if found, _ := filepath.Glob(filepath.Join(dir, "*"+recordsSuffix)); len(found) != files {
			t.Errorf("door %v: files %v", hasDoor, found)
		}
	}
}

// However much moves, only so much is written; failures always are.
func TestRecordsAreBounded(t *testing.T) {
	dir := t.TempDir()
	r, err := openRecords(dir, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ended := func(state fabric.State, at time.Time) agent.Record {
		return agent.Record{ID: agent.NewID(), Op: fabric.Read, State: state, Times: fabric.Times{Posted: at, Ended: at}}
	}
	for range 3 * transfersPerSecond {
		r.addTransfer(ended(fabric.Done, now))
	}
	failed := ended(fabric.InDoubt, now)
	r.addTransfer(failed)
	later := ended(fabric.Done, now.Add(time.Second))
	r.addTransfer(later)
	wide := &handoff.Record{Transfer: agent.NewID(), As: handoff.Source, Flows: make([]handoff.FlowRecord, 1<<16)}
	r.addHandOff(wide)
	if got := r.dropped(); got != 2*transfersPerSecond {
		t.Errorf("%d were passed over", got)
	}
	if err := r.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, record := range []agent.Record{failed, later} {
		if found, err := TransferIn(dir, record.ID); err != nil || found == nil {
			t.Errorf("%v is not written down: %v", record.State, err)
		}
	}
	if ids, err := MovedIDs(dir, "", 1<<20); err != nil || len(ids) != transfersPerSecond+3 {
		t.Errorf("%d are written down: %v", len(ids), err)
	}
	if found, err := HandOffsIn(dir, wide.Transfer); err != nil || len(found) != 1 || len(found[0].Flows) != maxFlowsWritten || len(wide.Flows) != 1<<16 {
		t.Errorf("%d records of a wide hand-off: %v", len(found), err)
	}
}

package history

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/move/agent"
	"meridian/move/agent/peerquery"
	"meridian/move/fabric"
	"meridian/move/transceiver/handoff"
)

// However much moves, only so much is written; failures always are.
func TestRecordsAreBounded(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(Options{Dir: dir, Agent: "a"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ended := func(state fabric.State, at time.Time) agent.Record {
		return agent.Record{ID: agent.NewID(), Op: fabric.Read, State: state, Times: fabric.Times{Posted: at, Ended: at}}
	}
	for range 3 * transfersPerSecond {
		r.TransferEnded(ended(fabric.Done, now))
	}
	failed := ended(fabric.InDoubt, now)
	r.TransferEnded(failed)
	later := ended(fabric.Done, now.Add(time.Second))
	r.TransferEnded(later)
	wide := &handoff.Record{Transfer: agent.NewID(), As: handoff.Source, Flows: make([]handoff.FlowRecord, 1<<16)}
	r.HandOffEnded(wide)
	if got := r.Dropped(); got != 2*transfersPerSecond {
		t.Errorf("%d were passed over", got)
	}
	if err := r.Close(t.Context()); err != nil {
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

// A file that cannot be opened is an error that names it, and nothing stays open.
func TestAFileThatCannotBeOpened(t *testing.T) {
	for _, kind := range []string{transferFiles, handOffFiles, prefixFiles} {
		dir := t.TempDir()
		path := filepath.Join(dir, kind+"a"+recordsSuffix)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{Dir: dir, Agent: "a"}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// What members write can be anything.
func TestGatheredIsAdmitted(t *testing.T) {
	id := agent.NewID()
	for name, c := range map[string]struct {
		kind   peerquery.Kind
		record any
		text   string
		taken  bool
	}{
		"hand-off":       {kind: peerquery.HandOffs, record: handoff.Record{Transfer: id, As: handoff.Source, SrcRanks: 1, DstRanks: 1, Flows: []handoff.FlowRecord{{}}}, taken: true},
		"endless matrix": {kind: peerquery.HandOffs, record: handoff.Record{Transfer: id, As: handoff.Source, SrcRanks: 1 << 40, DstRanks: 1 << 40}},
		"negative ranks": {kind: peerquery.HandOffs, record: handoff.Record{Transfer: id, As: handoff.Source, SrcRanks: -1}},
		"ranks beyond":   {kind: peerquery.HandOffs, record: handoff.Record{Transfer: id, As: handoff.Source, SrcRanks: 1, DstRanks: 1, Flows: []handoff.FlowRecord{{Flow: handoff.Flow{Src: 1}}}}},
		"no JSON":        {kind: peerquery.Transfers, text: "{"},
		"another kind":   {kind: 99, text: "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			line := []byte(c.text)
			if c.text == "" {
				var err error
				if line, err = json.Marshal(c.record); err != nil {
					t.Fatal(err)
				}
			}
			var g Gathered
			g.Admit(c.kind, line)
			if g.Empty() == c.taken {
				t.Errorf("got %+v", g)
			}
		})
	}
}

// Each hand-off is counted once, where it arrived.
func TestFlowsAddUp(t *testing.T) {
	var f flowTally
	flows := []handoff.FlowRecord{{Flow: handoff.Flow{Src: 0, Dst: 1}, Bytes: 10, Micros: 2, Fabric: "tcp"}, {Flow: handoff.Flow{Src: 1, Dst: 1}, Bytes: 5}}
	for range 3 {
		f.add(&handoff.Record{As: handoff.Destination, Engine: "d", PeerEngine: "p", Flows: flows})
		f.add(&handoff.Record{As: handoff.Source, Engine: "p", PeerEngine: "d", Flows: flows})
		f.add(&handoff.Record{As: handoff.Destination, Engine: "d", PeerEngine: "p", Flows: flows, Problem: "gone"})
	}
	totals, others := f.largest()
	if want := (FlowTotal{From: "p", To: "d", Src: 0, Dst: 1, Bytes: 30, HandOffs: 3, Micros: 6, Fabric: "tcp"}); len(totals) != 2 || totals[0] != want || others != 0 {
		t.Errorf("%+v, and %d others", totals, others)
	}
	for n := range 2 * maxFlowTotals {
		f.add(&handoff.Record{As: handoff.Destination, Flows: []handoff.FlowRecord{{Flow: handoff.Flow{Src: n}, Bytes: 1}}})
	}
	if totals, others = f.largest(); len(totals) != MaxFlowsTold || others != maxFlowTotals-MaxFlowsTold || totals[0].Bytes != 30 {
		t.Errorf("%d told, %d others", len(totals), others)
	}
}

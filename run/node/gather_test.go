package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory/etcd/embedded"
	"meridian/member/trust"
	"meridian/move/agent"
	"meridian/move/agent/peerquery"
	"meridian/move/transceiver/handoff"
	"meridian/see/ledger"
)

// hosts is a cell whose members have state directories of their own, as on several
// machines: one directory, and one key.
type hosts struct {
	endpoint string
	key      []byte
}

func newHosts(t *testing.T) *hosts {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	directory, err := embedded.Open(t.Context(), embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close(context.Background()) })
	if _, err := trust.OpenCellKey(dir); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(dir, trust.CellKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return &hosts{directory.Endpoint(), key}
}

// stateDir is that of another host.
func (h *hosts) stateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, trust.CellKeyFile), h.key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (h *hosts) agent(t *testing.T, name string, d *Door) *Agent {
	t.Helper()
	n, err := OpenAgent(t.Context(), AgentOptions{Name: name, StateDir: h.stateDir(t), Directory: []string{h.endpoint}, Listen: "127.0.0.1:0", Door: d})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	return n
}

// A client with the cell's key, on a host that had no part in it, finds out what
// became of a request: from the gateway, and from the agents of both sides. Who does
// not answer is named.
func TestGatheredFromOtherHosts(t *testing.T) {
	h := newHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	prefill, decode := h.agent(t, "p", &Door{}), h.agent(t, "d", &Door{})
	_, _, _, id := handOver(t, ctx, prefill, decode)
	o := gatewayOptions(t)
	o.Backends, o.StateDir, o.DirectoryEndpoints = nil, h.stateDir(t), []string{h.endpoint}
	g, err := OpenGateway(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	g.records.Add(&ledger.Record{ID: id.String(), ClientID: "order 7", Outcome: ledger.Finished, Legs: []ledger.Leg{{Kind: ledger.DecodeLeg, Transfer: id.String()}}, Shape: ledger.Shape{Tenant: 7}})
	until.True(t, "the gateway has joined", func() bool { _, err := g.Member(); return err == nil })

	visitor := h.agent(t, "visitor", nil)
	for _, name := range []string{id.String(), "order 7"} {
		found, err := visitor.Gather(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Requests) != 1 || len(found.HandOffs) != 2 || len(found.Transfers) == 0 || len(found.Silent) != 0 {
			t.Fatalf("%s: %d requests, %d hand-offs, %d transfers, silent %v", name, len(found.Requests), len(found.HandOffs), len(found.Transfers), found.Silent)
		}
		if found.Requests[0].Tenant != 0 {
			t.Error("what tells tenants apart has left the gateway")
		}
		for _, r := range found.Transfers {
			if r.PartOf != id {
				t.Errorf("a transfer of %s", r.PartOf)
			}
		}
		for _, part := range []string{"request " + id.String(), "as source for engine p", "as destination for engine d"} {
			if !strings.Contains(found.String(), part) {
				t.Errorf("%s: no %q in\n%s", name, part, found)
			}
		}
	}
	if found, err := visitor.Gather(ctx, id.String()[:6]); err != nil || len(found.HandOffs) != 2 {
		t.Errorf("by how it begins: %v, %+v", err, found)
	}
	if found, err := visitor.Gather(ctx, agent.NewID().String()); err != nil || !found.Empty() {
		t.Errorf("what never was: %v, %+v", err, found)
	}

	// An agent that hangs is named, and the others are heard.
	decode.Questions.Close(ctx)
	found, err := visitor.Gather(ctx, id.String())
	if err != nil || len(found.HandOffs) != 1 || len(found.Silent) != 1 || found.Silent[0].Name != "d" {
		t.Errorf("%v, %+v", err, found)
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
			g.admit(c.kind, line)
			if g.Empty() == c.taken {
				t.Errorf("got %+v", g)
			}
		})
	}
}

func TestRingKeepsTheLast(t *testing.T) {
	var r ring[int]
	for n := range ringRecords + 10 {
		r.add(&n)
	}
	kept, first, end := r.since(3)
	if len(kept) != ringRecords || first != 10 || end != ringRecords+10 || *kept[0] != 10 || *kept[len(kept)-1] != ringRecords+9 {
		t.Errorf("%d kept, from %d to %d", len(kept), first, end)
	}
	if kept, first, end = r.since(end - 1); len(kept) != 1 || first != end-1 {
		t.Errorf("%d kept, from %d", len(kept), first)
	}
	if kept, first, _ = r.since(1 << 50); len(kept) != 0 || first != end {
		t.Errorf("%d kept, from %d", len(kept), first)
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
	if totals, others = f.largest(); len(totals) != maxFlowsTold || others != maxFlowTotals-maxFlowsTold || totals[0].Bytes != 30 {
		t.Errorf("%d told, %d others", len(totals), others)
	}
}

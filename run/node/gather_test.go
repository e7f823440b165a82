package node

import (
	"context"
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
	"meridian/see/history"
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
		found, err := history.Gather(ctx, visitor.Questions, name)
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
	if found, err := history.Gather(ctx, visitor.Questions, id.String()[:6]); err != nil || len(found.HandOffs) != 2 {
		t.Errorf("by how it begins: %v, %+v", err, found)
	}
	if found, err := history.Gather(ctx, visitor.Questions, agent.NewID().String()); err != nil || !found.Empty() {
		t.Errorf("what never was: %v, %+v", err, found)
	}

	// An agent that hangs is named, and the others are heard.
	decode.Questions.Close(ctx)
	found, err := history.Gather(ctx, visitor.Questions, id.String())
	if err != nil || len(found.HandOffs) != 1 || len(found.Silent) != 1 || found.Silent[0].Name != "d" {
		t.Errorf("%v, %+v", err, found)
	}
}

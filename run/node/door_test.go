package node

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/kv"
	"meridian/member/directory"
	"meridian/member/directory/etcd/embedded"
	"meridian/move/agent"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver/handoff"
	"meridian/see/history"
	"meridian/serve/door"
)

// atDoor registers an engine of one rank at a node's door.
func atDoor(t *testing.T, ctx context.Context, stateDir, agentName, id string, p door.Publication) (*door.Client, *mem.Arena, chan door.Event) {
	t.Helper()
	side := reshard.Side{Geometry: p.Geometry, Parallelism: p.Parallelism, Layout: p.Layout, BlockTokens: p.BlockTokens, Blocks: p.Blocks}
	size, err := side.MemoryBytes(0)
	if err != nil {
		t.Fatal(err)
	}
	arena, err := mem.NewArena(mem.ArenaOptions{Name: id, SizeBytes: uint64(size), NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan door.Event, 64)
	client, err := door.Open(ctx, door.Options{
		Socket: door.Socket(stateDir, agentName), Engine: id, URL: "http://127.0.0.1:9", Role: "both", Model: "m", Publish: p,
		Memory: []*mem.Section{arena.Section}, Events: func(e door.Event) { events <- e },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := arena.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client, arena, events
}

// Two agents as `meridian agent` runs them, with a real directory: engines come in
// at their doors, are listed, hand over, and are counted.
func TestEnginesComeInAtTheDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	directory, err := embedded.Open(ctx, embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close(context.Background()) })
	var nodes []*Agent
	for _, name := range []string{"p", "d"} {
		n, err := OpenAgent(ctx, AgentOptions{Name: name, StateDir: dir, Listen: "127.0.0.1:0", Metrics: "127.0.0.1:0", Door: &Door{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, n)
	}
	if info, err := os.Stat(door.Socket(dir, "p")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the door: %v, %v", info, err)
	}
	layout, err := kv.ParseLayout("BLFHND")
	if err != nil {
		t.Fatal(err)
	}
	publication := door.Publication{
		Geometry: kv.Uniform(2, kv.Layer{KVHeads: 1, HeadDim: 8}, kv.Float32), Parallelism: kv.Split(2, 1, 1), Layout: layout, BlockTokens: 4, Blocks: 16,
	}
	from, source, _ := atDoor(t, ctx, dir, "p", "prefill-0", publication)
	to, destination, heard := atDoor(t, ctx, dir, "d", "decode-0", publication)
	copy(source.Bytes(512, 512), strings.Repeat("x", 512))
	id, tokens := [16]byte(agent.NewID()), []uint32{1, 2, 3, 4}
	ticket, err := from.Offer(ctx, door.Offer{Transfer: id, Tokens: tokens, Tables: [][]uint32{{1}}, Layers: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Accept(ctx, door.Accept{Ticket: ticket, Tokens: tokens, Tables: [][]uint32{{7}}}); err != nil {
		t.Fatal(err)
	}
	for e := range heard {
		if e.Kind == door.Failed {
			t.Fatal(e.Problem)
		}
		if e.Kind == door.Ready {
			break
		}
	}
	if got := string(destination.Bytes(7*512, 512)); got != strings.Repeat("x", 512) {
		t.Error("the block is not what was offered")
	}
	listed(t, ctx, nodes[1].Directory, "decode-0", "d")
	if records, err := history.Get[[]handoff.Record](ctx, history.AdminSocket(dir, "d"), "/handoffs/"+kv.ID(id).String()); err != nil || len(records) != 1 {
		t.Errorf("it is explained by %d records, %v", len(records), err)
	}
	text := scrape(t, nodes[1].MetricsAddr())
	for _, line := range []string{
		`meridian_handoff_accepts_ended_total{end="ready"} 1`, `meridian_handoff_bytes_total 512`,
		`meridian_door_engines{state="serving"} 1`, `meridian_door_connections 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func listed(t *testing.T, ctx context.Context, d directory.Directory, id, home string) {
	t.Helper()
	var record directory.Record
	until.Well(t, id+" is listed", func() string {
		var err error
		if record, err = d.Get(ctx, directory.EnginePrefix+id); err != nil {
			return err.Error()
		}
		return ""
	})
	var r directory.EngineRecord
	if err := json.Unmarshal(record.Value, &r); err != nil || r.Home != home || r.URL != "http://127.0.0.1:9" || r.Role != "both" || r.BlockTokens != 4 {
		t.Errorf("%s, %v", record.Value, err)
	}
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

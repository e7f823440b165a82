package node

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meridian/kv"
	"meridian/member/directory/etcd/embedded"
	"meridian/move/agent"
	"meridian/move/mem"
	"meridian/move/reshard"
	"meridian/move/transceiver"
	"meridian/move/transceiver/handoff"
	"meridian/see/history"
)

// engineOn registers an engine of one rank with a node.
func engineOn(t *testing.T, n *Agent, id string, side reshard.Side) *mem.Arena {
	t.Helper()
	size, err := side.MemoryBytes(0)
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	arena, err := mem.NewArena(mem.ArenaOptions{Name: id, SizeBytes: uint64((size + page - 1) / page * page), NUMANode: -1})
	if err != nil {
		t.Fatal(err)
	}
	region, err := n.Register(arena.Section, id)
	if err != nil {
		t.Fatal(err)
	}
	memory := handoff.Memory{{Region: region.ID, Epoch: region.Epoch, Length: uint64(size)}}
	engine := handoff.Engine{ID: id, Side: side, Ranks: []handoff.Rank{{Agent: kv.Member{Name: n.Name(), Incarnation: n.Incarnation()}, Memory: memory}}}
	if err := n.Transceiver.Join(engine); err != nil {
		t.Fatal(err)
	}
	return arena
}

// handOver has one agent hand a request's cache to another.
func handOver(t *testing.T, ctx context.Context, prefill, decode *Agent) (side reshard.Side, source, destination *mem.Arena, id kv.ID) {
	t.Helper()
	geometry, err := kv.ParseGeometry("layers=2,kv_heads=2,head_dim=8,dtype=bf16")
	if err != nil {
		t.Fatal(err)
	}
	layout, err := kv.ParseLayout("LBHNC")
	if err != nil {
		t.Fatal(err)
	}
	side = reshard.Side{Geometry: geometry, Parallelism: kv.Split(2, 1, 1), Layout: layout, BlockTokens: 16, Blocks: 16}
	source = engineOn(t, prefill, "p", side)
	destination = engineOn(t, decode, "d", side)
	for i := range source.Bytes(0, source.Size()) {
		source.Bytes(0, source.Size())[i] = byte(i*7 + i>>8)
	}
	content := handoff.Content{Scope: kv.Scope{Model: "m"}, Tokens: make([]uint32, 64)}
	blocks := reshard.Holding{Tables: [][]uint32{{0, 1, 2, 3}}}
	out, err := prefill.Transceiver.Offer(transceiver.Offer{Transfer: agent.NewID(), Engine: "p", Content: content, Holding: blocks, Layers: 2})
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := decode.Transceiver.OpenTicket(out.Ticket, &content)
	if err != nil {
		t.Fatal(err)
	}
	in, err := decode.Transceiver.Accept(ctx, transceiver.Accept{Ticket: ticket, Engine: "d", Tokens: kv.TokenRange{End: len(content.Tokens)}, Holding: blocks})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := out.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return side, source, destination, in.Transfer
}

// Two processes' worth of agents hand a request over, found in the directory;
// afterwards their admin sockets explain it.
func TestHandOffIsExplained(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state") // made by the directory, for its user alone
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	directory, err := embedded.Open(ctx, embedded.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = directory.Close(context.Background()) })
	var closings []func() error
	node := func(name string) *Agent {
		n, err := OpenAgent(ctx, AgentOptions{Name: name, StateDir: dir, Listen: "127.0.0.1:0", Door: &Door{}})
		if err != nil {
			t.Fatal(err)
		}
		once := sync.OnceValue(func() error { return n.Close(context.Background()) })
		closings = append(closings, once)
		t.Cleanup(func() { _ = once() })
		return n
	}
	prefill, decode := node("prefill"), node("decode")
	side, source, destination, id := handOver(t, ctx, prefill, decode)
	size, _ := side.MemoryBytes(0)
	layer := uint64(size) / 2
	moved := layer / 4 // four blocks of sixteen
	for at := range uint64(2) {
		if !bytes.Equal(destination.Bytes(at*layer, moved), source.Bytes(at*layer, moved)) {
			t.Errorf("layer %d differs", at)
		}
	}
	for name, as := range map[string]string{"prefill": "as source for engine p", "decode": "as destination for engine d"} {
		records, err := history.Get[[]handoff.Record](ctx, history.AdminSocket(dir, name), "/handoffs/"+id.String())
		if err != nil || len(records) != 1 || !strings.Contains(records[0].String(), as) || records[0].Bytes != 2*moved {
			t.Errorf("%s: %v, %+v", name, err, records)
		}
	}
	if _, err := history.Get[[]handoff.Record](ctx, history.AdminSocket(dir, "decode"), "/handoffs/"+agent.NewID().String()); err == nil {
		t.Error("a hand-off that never was is explained")
	}
	// What they have moved outlives them.
	began := id.String()[:8]
	for _, closing := range closings {
		if err := closing(); err != nil {
			t.Fatal(err)
		}
	}
	records, err := history.HandOffsIn(dir, id)
	if err != nil || len(records) != 2 || records[0].Bytes != 2*moved || time.Since(time.UnixMicro(records[0].EndedUnixUs)).Abs() > time.Hour {
		t.Errorf("%v, %+v", err, records)
	}
	if ids, err := history.MovedIDs(dir, began, 9); err != nil || !slices.Contains(ids, id) {
		t.Errorf("%v, %v begin with %s", err, ids, began)
	}
	if records, err := history.HandOffsIn(dir, agent.NewID()); err != nil || len(records) > 0 {
		t.Errorf("a hand-off that never was is written down: %v, %+v", err, records)
	}
}

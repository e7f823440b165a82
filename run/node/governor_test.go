package node

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/decide/phase"
	"meridian/kv"
	"meridian/see/history"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/governing"
)

func governed(t *testing.T) *governing.Options {
	t.Helper()
	model, err := phase.NewModel(phase.Markers{Start: []phase.Marker{{IDs: []uint32{90}}}, End: []phase.Marker{{IDs: []uint32{91}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &governing.Options{
		Policy: "meridian", PreemptMaxFraction: 0.1, Wait: 700 * time.Microsecond, Budget: governor.Budget{MaxThinkTokens: 3},
		Memory: block.Options{ThinkFraction: 0.4}, BlockSize: 1,
		Model: func(string) (governing.Model, error) { return governing.Model{Phase: model}, nil },
	}
}

// openGoverned is an agent that governs.
func openGoverned(t *testing.T, o *governing.Options) (n *Agent, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "s")
	n, err := OpenAgent(t.Context(), AgentOptions{Name: "a", StateDir: dir, NoDirectory: true, Fabrics: []string{"host"}, Metrics: "127.0.0.1:0", Door: &Door{Governor: o}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n, dir
}

// An engine that tells of its steps is governed by the door of a running agent: who runs,
// and when a thought has gone on long enough.
func TestGoverned(t *testing.T) {
	n, dir := openGoverned(t, governed(t))
	about := &doorpb.Steps{Model: "m", BlockTokens: 4, MaxRunning: 4, StepTokens: 64, Forces: true}
	steps, err := door.OpenSteps(t.Context(), door.StepsOptions{Socket: door.Socket(dir, "a"), Engine: "e", About: about})
	if err != nil {
		t.Fatal(err)
	}
	defer steps.Close()
	if terms := steps.Terms(); terms.GetPolicy() != "meridian" || terms.GetWaitUs() != 700 || terms.GetMaxThinkTokens() != 3 || !slices.Equal(terms.GetEndTokens(), []uint32{91}) {
		t.Errorf("the terms are %v", terms)
	}
	if !steps.Renewed() {
		t.Fatal("no connection")
	}
	tell := func(m *doorpb.Step) *doorpb.Decision {
		t.Helper()
		if !steps.Send(m) {
			t.Fatal("the agent takes no steps")
		}
		come := steps.Take(time.Minute)
		if len(come) != 1 || come[0].GetStep() != m.Number {
			t.Fatalf("after step %d: %v", m.Number, come)
		}
		return come[0]
	}
	if d := tell(&doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Sequence: 8, PromptTokens: 5}}}); !slices.Equal(d.Order, []uint64{8}) || d.OrderTokens[0] != 5 {
		t.Errorf("got %v", d)
	}
	tell(&doorpb.Step{Number: 2, Sequences: []uint64{8}, Computed: []uint32{5}, Counts: []uint32{1}, Tokens: []uint32{90}})
	for number := uint64(3); number < 6; number++ {
		d := tell(&doorpb.Step{Number: number, Sequences: []uint64{8}, Computed: []uint32{1}, Counts: []uint32{1}, Tokens: []uint32{7}})
		if forced := len(d.Force) == 1; forced != (number == 5) {
			t.Errorf("step %d: %v", number, d)
		}
	}
	tell(&doorpb.Step{Number: 6, Sequences: []uint64{8}, Computed: []uint32{1}, Counts: []uint32{2}, Tokens: []uint32{91, 7}})

	engines, err := history.Get[[]governing.Engine](t.Context(), history.AdminSocket(dir, "a"), "/phases")
	if err != nil || len(engines) != 1 || len(engines[0].Requests) != 1 {
		t.Fatalf("%v: %+v", err, engines)
	}
	if r := engines[0].Requests[0]; engines[0].Name != "e" || r.Phase != "output" || r.Think != 3 || r.Cap != 3 || r.Output != 1 || r.Decided != "force" || r.Reason != "hard_cap" {
		t.Errorf("%+v", engines[0])
	}
	response, err := http.Get("http://" + n.MetricsAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`meridian_budget_force_reason{reason="hard_cap"} 1`, `meridian_budget_force_triggered 1`, `meridian_phase_router_tracked_requests 1`,
		`meridian_think_tokens_per_request_sum 3`, `meridian_think_tokens_per_request_count 1`, `meridian_scheduler_batch_size_sum{phase="think"} 4`,
		`meridian_scheduler_batch_size_sum{phase="output"} 1`, `meridian_schedule_batch_duration_ns_count 6`, `meridian_queue_depth{queue="think"} 0`,
		`meridian_governor_contradictions_total 0`, `meridian_entropy_transitions_total 0`, `meridian_governor_preempted_total{way="recompute"} 0`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}

// kv_memory is held against the blocks of an engine that has said how they are cut.
func TestGovernedMemory(t *testing.T) {
	n, dir := openGoverned(t, governed(t))
	layout, err := kv.ParseLayout("BLFHND")
	if err != nil {
		t.Fatal(err)
	}
	atDoor(t, t.Context(), dir, "a", "e", door.Publication{
		Geometry: kv.Uniform(2, kv.Layer{KVHeads: 1, HeadDim: 8}, kv.Float32), Parallelism: kv.Split(2, 1, 1), Layout: layout, BlockTokens: 4, Blocks: 16,
	})
	if size := n.Door.BlockBytes("e"); size != 512 {
		t.Errorf("a block has %d bytes", size)
	}
	about := &doorpb.Steps{Model: "m", Blocks: 16, BlockTokens: 4, MaxRunning: 4, StepTokens: 64}
	open := func(engine string) error {
		steps, err := door.OpenSteps(t.Context(), door.StepsOptions{Socket: n.Door.Socket(), Engine: engine, About: about})
		if err == nil {
			steps.Close()
		}
		return err
	}
	if err := open("e"); err == nil || !strings.Contains(err.Error(), "kv_memory.block_size_bytes is 1, but a block of this engine has 512") {
		t.Errorf("got %v", err)
	}
	if err := open("another"); err != nil {
		t.Errorf("of whose blocks nothing is known: %v", err)
	}
	about.BlockBytes = 256
	if err := open("another"); err == nil || !strings.Contains(err.Error(), "a block of this engine has 256") {
		t.Errorf("one that has not registered: %v", err)
	}
	if err := open("e"); err == nil || !strings.Contains(err.Error(), "has 512") {
		t.Errorf("one that has registered: %v", err)
	}
}

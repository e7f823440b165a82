package doorserver_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"meridian/decide/block"
	"meridian/decide/governor"
	"meridian/internal/until"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/doorserver"
	"meridian/serve/governing"
)

// fakeGovernor lets whom a step names run in the reverse order, and remembers what it heard.
type fakeGovernor struct {
	mu     sync.Mutex
	heard  []*doorpb.Step
	about  []*doorpb.Steps
	open   int
	most   int // schedulers at a time
	closed int
}

type fakeGoverned struct {
	g     *fakeGovernor
	about *doorpb.Steps
}

func (g *fakeGovernor) Govern(engine string, about *doorpb.Steps) (doorserver.Governed, error) {
	switch {
	case engine == "denied":
		return nil, &door.Problem{Code: door.CodeDenied, Message: "not this one"}
	case about.GetModel() == "unknown":
		return nil, errors.New("no model of that name")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.about = append(g.about, about)
	if !about.GetMeasures() {
		g.open++
		g.most = max(g.most, g.open)
	}
	return &fakeGoverned{g, about}, nil
}

func (g *fakeGovernor) ended() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *fakeGoverned) Terms() *doorpb.GovernorTerms {
	return &doorpb.GovernorTerms{Policy: "fake", WaitUs: 300, MaxThinkTokens: 64, EndTokens: []uint32{7}, Entropy: true}
}

func (g *fakeGoverned) Step(m *doorpb.Step) (*doorpb.Decision, error) {
	if slices.Contains(m.GetFinished(), 666) {
		return nil, errors.New("sequence 666 never began")
	}
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	if len(g.g.heard) < 1000 {
		g.g.heard = append(g.g.heard, m)
	}
	if g.about.GetMeasures() {
		return nil, nil
	}
	order := slices.Clone(m.GetSequences())
	slices.Reverse(order)
	if slices.Contains(m.GetFinished(), 999) {
		order = make([]uint64, 64<<10)
	}
	return &doorpb.Decision{Order: order, OrderTokens: make([]uint32, len(order)), Pause: m.GetFinished()}, nil
}

func (g *fakeGoverned) Close() {
	g.g.mu.Lock()
	defer g.g.mu.Unlock()
	g.g.closed++
	if !g.about.GetMeasures() {
		g.g.open--
	}
}

func governed(g *fakeGovernor) func(*doorserver.Options) {
	return func(o *doorserver.Options) { o.Governor = g }
}

// realGovernor is the one that agents have.
type realGovernor struct{ *governing.Governors }

func (g realGovernor) Govern(engine string, about *doorpb.Steps) (doorserver.Governed, error) {
	c, err := g.Governors.Govern(engine, about)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func newGovernors(t testing.TB) realGovernor {
	t.Helper()
	g, err := governing.New(governing.Options{
		Policy: "meridian", PreemptMaxFraction: 0.1, OffloadThreshold: 2, Store: true, Wait: 500 * time.Microsecond, Now: time.Now,
		Budget: governor.Budget{MaxThinkTokens: 1 << 10}, Memory: block.Options{ThinkFraction: 0.4},
		Model: func(string) (governing.Model, error) { return governing.Model{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return realGovernor{g}
}

func stepsHello(engine string, about *doorpb.Steps) *doorpb.Hello {
	return &doorpb.Hello{Engine: engine, As: &doorpb.Hello_Steps{Steps: about}, Features: []string{door.FeatureSteps}}
}

// tell sends a Step and reads what answers it.
func tell(t testing.TB, wire *door.Conn, m *doorpb.Step) door.Frame {
	t.Helper()
	sent := wire.Send(doorpb.FrameType_FRAME_TYPE_STEP, m, nil) // of what is too long not all is taken
	f, err := wire.Read(door.MaxFrameBytes)
	if err != nil {
		t.Fatal(sent, err)
	}
	return f
}

func decided(t testing.TB, f door.Frame) *doorpb.Decision {
	t.Helper()
	var m doorpb.Decision
	if err := f.Unmarshal(&m); f.Type != doorpb.FrameType_FRAME_TYPE_DECISION || err != nil {
		t.Fatalf("%v came, %v", f.Type, err)
	}
	return &m
}

func TestStepsAreDecided(t *testing.T) {
	g := &fakeGovernor{}
	n := newCell(t, "tcp").start("n", governed(g))
	wire, f := greet(t, n, stepsHello("e", &doorpb.Steps{Model: "m", Blocks: 8, MaxRunning: 4}))
	var welcome doorpb.Welcome
	if err := f.Unmarshal(&welcome); err != nil || f.Type != doorpb.FrameType_FRAME_TYPE_WELCOME {
		t.Fatalf("%v, %v", f.Type, err)
	}
	if terms := welcome.GetGovernor(); terms.GetWaitUs() != 300 || terms.GetMaxThinkTokens() != 64 || !slices.Equal(welcome.GetFeatures(), []string{door.FeatureSteps}) || welcome.GetMaxFrameBytes() != door.MaxStepBytes {
		t.Errorf("the welcome is %v", &welcome)
	}
	measures, _ := greet(t, n, stepsHello("e", &doorpb.Steps{Measures: true}))
	if err := measures.Send(doorpb.FrameType_FRAME_TYPE_STEP, &doorpb.Step{
		Number: 1, Sequences: []uint64{5}, Counts: []uint32{3}, Places: []uint32{0}, Entropies: []float32{-1e-7, float32(math.Inf(1)), 2},
	}, nil); err != nil {
		t.Fatal(err)
	}
	until.True(t, "what was measured is heard", func() bool { return n.Metrics().StepsMeasured == 1 })
	long := strings.Repeat("x", 127) + "é" + strings.Repeat("x", 100)
	d := decided(t, tell(t, wire, &doorpb.Step{
		Number: 9, Running: 2, Waiting: 3, FreeBlocks: 4, Begun: []*doorpb.Begun{{Sequence: 5, Id: long, Tenant: long}},
		Sequences: []uint64{5, 6}, Computed: []uint32{1, 1}, Counts: []uint32{1, 2}, Tokens: []uint32{10, 11, 12}, BlockCounts: []uint32{2, 0}, Blocks: []uint32{0, 1},
	}))
	if d.GetStep() != 9 || !slices.Equal(d.GetOrder(), []uint64{6, 5}) {
		t.Errorf("decided is %v", d)
	}
	g.mu.Lock()
	measured, begun := g.heard[0].GetEntropies(), g.heard[1].GetBegun()[0]
	g.mu.Unlock()
	if measured[0] != 0 || !math.IsNaN(float64(measured[1])) || measured[2] != 2 {
		t.Errorf("the governor hears %v", measured)
	}
	if begun.GetId() != long[:127] || begun.GetTenant() != long[:64] {
		t.Errorf("the governor hears of %q of %q", begun.GetId(), begun.GetTenant())
	}
	until.True(t, "the decision is counted", func() bool { return n.Metrics().StepsDecided == 1 })
	m := n.Metrics()
	if m.Governed != 1 || m.Measuring != 1 || m.Running != 2 || m.Waiting != 3 || m.FreeBlocks != 4 || m.StepsMeasured != 1 {
		t.Errorf("%+v", m)
	}
	// What is not for it is refused, and it goes on.
	if err := wire.Send(doorpb.FrameType_FRAME_TYPE_OFFER, &doorpb.Offer{Request: 3}, nil); err != nil {
		t.Fatal(err)
	}
	if f, err := wire.Read(door.MaxFrameBytes); err != nil || codeOf(t, f) != "order" {
		t.Errorf("an offer: %v", err)
	}
	if d := decided(t, tell(t, wire, &doorpb.Step{Number: 10})); d.GetStep() != 10 {
		t.Errorf("decided is %v", d)
	}
	_, _ = wire.Close(), measures.Close()
	until.True(t, "the governor hears of the end", func() bool { return g.ended() == 2 })
	until.True(t, "nothing is left", n.empty)
	if m := n.Metrics(); m.Governed+m.Measuring != 0 || m.Running != 0 || m.Fenced != 0 {
		t.Errorf("%+v", m)
	}
}

// What cannot be ends the connection and nothing else.
func TestStepsThatCannotBe(t *testing.T) {
	g := &fakeGovernor{}
	c := newCell(t, "tcp")
	n := c.start("n", governed(g))
	c.engine("e", n, cut{1, 1, 16, 8, "LBHNC"})
	two := []uint64{1, 2}
	for i, bad := range []struct {
		measures bool
		m        *doorpb.Step
		code     string
	}{
		{false, &doorpb.Step{}, "malformed"}, // its number is not larger than none
		{false, &doorpb.Step{Number: 1, Sequences: two, Computed: []uint32{1}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Sequences: two, Counts: []uint32{1, 1, 1}, Tokens: []uint32{1, 2, 3}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Sequences: two, Counts: []uint32{1, math.MaxUint32}, Tokens: []uint32{}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Sequences: two, Counts: []uint32{1, 1}, Tokens: []uint32{1}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Tokens: []uint32{1}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Sequences: two, Counts: []uint32{1, 1}, Tokens: []uint32{1, 2}, Entropies: []float32{1}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Sequences: two, BlockCounts: []uint32{1, 1}, Blocks: []uint32{1}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Blocks: []uint32{1}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Sequences: two, Places: []uint32{1, 2}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Forked: two, ForkNats: []float32{1}}, "malformed"},
		{false, &doorpb.Step{Number: 1, Sequences: make([]uint64, door.MaxStepSequences+1)}, "busy"},
		{false, &doorpb.Step{Number: 1, Finished: make([]uint64, door.MaxStepSequences+1)}, "busy"},
		{false, &doorpb.Step{Number: 1, Forked: make([]uint64, door.MaxStepSequences+1), ForkNats: make([]float32, door.MaxStepSequences+1)}, "busy"},
		{false, &doorpb.Step{Number: 1, Evicted: make([]uint32, door.MaxGovernedBlocks+1)}, "busy"},
		{false, &doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Tail: make([]uint32, door.MaxTailTokens+1)}}}, "busy"},
		{false, &doorpb.Step{Number: 1, Begun: []*doorpb.Begun{{Generated: make([]uint32, door.MaxGeneratedTokens+1)}}}, "busy"},
		{false, &doorpb.Step{Number: 1, Begun: make([]*doorpb.Begun, door.MaxMessages+1)}, "malformed"},
		{false, &doorpb.Step{Number: 1, Finished: []uint64{666}}, "request"}, // the governor refuses it
		{false, &doorpb.Step{Number: 1, Evicted: make([]uint32, door.MaxStepBytes)}, "malformed"},
		{true, &doorpb.Step{Number: 1, Sequences: two, Counts: []uint32{1, 1}, Entropies: []float32{1, 2}}, "malformed"},
		{true, &doorpb.Step{Number: 1, Sequences: two, Places: []uint32{1, 1}, Counts: []uint32{1, 1}, Entropies: []float32{1}}, "malformed"},
		{true, &doorpb.Step{Number: 1, Sequences: two, Places: []uint32{1, 1}, Counts: []uint32{1, 1}, Tokens: []uint32{1, 2}, Entropies: []float32{1, 2}}, "malformed"},
		{true, &doorpb.Step{Number: 1, Finished: two}, "malformed"},
		{true, &doorpb.Step{Number: 1, Forced: two, ForcedFor: []doorpb.ForceReason{1}}, "malformed"},
		{true, &doorpb.Step{Number: 1, Forced: make([]uint64, door.MaxStepSequences+1), ForcedFor: make([]doorpb.ForceReason, door.MaxStepSequences+1)}, "busy"},
		{false, &doorpb.Step{Number: 1, Forced: two, ForcedFor: []doorpb.ForceReason{1, 2}}, "malformed"},
	} {
		for j, b := range bad.m.GetBegun() {
			if b == nil {
				bad.m.Begun[j] = &doorpb.Begun{}
			}
		}
		wire, _ := greet(t, n, stepsHello("e", &doorpb.Steps{Measures: bad.measures}))
		if code := codeOf(t, tell(t, wire, bad.m)); code != bad.code {
			t.Errorf("%d: %s, and not %s", i, code, bad.code)
		}
		if f, err := wire.Read(door.MaxFrameBytes); err == nil {
			t.Errorf("%d: %v came, and no end", i, f.Type)
		}
		until.True(t, "the governor hears of the end", func() bool { return g.ended() == i+1 })
	}
	if m := n.Metrics(); m.Serving != 1 || m.Fenced != 0 || m.StepsRefused != 26 {
		t.Errorf("an engine suffers from its steps: %+v", m)
	}
}

func TestWhoMayTellOfSteps(t *testing.T) {
	g := &fakeGovernor{}
	c := newCell(t, "tcp")
	n, alone := c.start("n", governed(g), func(o *doorserver.Options) { o.MaxEngines = 2 }), c.start("alone")
	refused := func(at *node, hello *doorpb.Hello, code string) {
		t.Helper()
		if _, f := greet(t, at, hello); codeOf(t, f) != code {
			t.Errorf("%v: %s, and not %s", hello, codeOf(t, f), code)
		}
	}
	refused(alone, stepsHello("e", &doorpb.Steps{}), "unsupported")
	refused(n, &doorpb.Hello{Engine: "e", As: &doorpb.Hello_Steps{Steps: &doorpb.Steps{}}}, "terms") // it names no feature
	refused(n, stepsHello("", &doorpb.Steps{}), "terms")
	refused(n, stepsHello("e", &doorpb.Steps{Model: strings.Repeat("m", 2<<10)}), "terms")
	refused(n, stepsHello("e", &doorpb.Steps{Blocks: door.MaxGovernedBlocks + 1}), "terms")
	refused(n, stepsHello("e", &doorpb.Steps{MaxRunning: door.MaxStepSequences + 1}), "terms")
	refused(n, stepsHello("e", &doorpb.Steps{BlockBytes: door.MaxGovernedBlockBytes + 1}), "terms")
	refused(n, stepsHello("e", &doorpb.Steps{Model: "unknown"}), "terms")
	refused(n, stepsHello("denied", &doorpb.Steps{}), "denied")

	first, _ := greet(t, n, stepsHello("e", &doorpb.Steps{}))
	decided(t, tell(t, first, &doorpb.Step{Number: 1}))
	refused(n, stepsHello("e", &doorpb.Steps{}), "present")
	for range door.MaxMeasuring {
		if _, f := greet(t, n, stepsHello("e", &doorpb.Steps{Measures: true})); f.Type != doorpb.FrameType_FRAME_TYPE_WELCOME {
			t.Fatalf("%v came", f.Type)
		}
	}
	refused(n, stepsHello("e", &doorpb.Steps{Measures: true}), "busy")
	greet(t, n, stepsHello("f", &doorpb.Steps{}))
	refused(n, stepsHello("g", &doorpb.Steps{}), "busy")

	// One that comes while the one before is leaving waits for its place.
	leaving := make(chan error)
	go func() { leaving <- first.Close() }()
	next, _ := greet(t, n, stepsHello("e", &doorpb.Steps{}))
	decided(t, tell(t, next, &doorpb.Step{Number: 1})) // numbers begin anew
	if err := <-leaving; err != nil {
		t.Error(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.most != 2 { // of e and of f
		t.Errorf("the governor saw %d schedulers at a time", g.most)
	}
}

// A scheduler that does not read what is decided is cut off; nothing is left out silently.
func TestDecisionsThatAreNotRead(t *testing.T) {
	g := &fakeGovernor{}
	n := newCell(t, "tcp").start("n", governed(g))
	wire, _ := greet(t, n, stepsHello("e", &doorpb.Steps{}))
	var sent uint64
	for number := uint64(1); ; number++ {
		if err := wire.Send(doorpb.FrameType_FRAME_TYPE_STEP, &doorpb.Step{Number: number, Finished: []uint64{999}}, nil); err != nil {
			break
		}
		sent = number
	}
	until.True(t, "the governor hears of the end", func() bool { return g.ended() == 1 })
	for number := uint64(1); ; number++ {
		f, err := wire.Read(door.MaxFrameBytes)
		if err != nil {
			break
		}
		if d := decided(t, f); d.GetStep() != number {
			t.Fatal(fmt.Errorf("after step %d of %d: %d", number-1, sent, d.GetStep()))
		}
	}
	if m := n.Metrics(); m.StepsUnread != 1 {
		t.Errorf("%+v", m)
	}
}

// A scheduler whose process is killed has left, also where a child keeps its socket.
func TestSchedulerKilled(t *testing.T) {
	g := &fakeGovernor{}
	c := newCell(t, "tcp")
	n := c.start("n", governed(g))
	p := c.process("e", n, cut{1, 1, 16, 8, "LBHNC"}, func(o *puppetOptions) { o.Steps, o.LeavesAChild = true, true })
	until.True(t, "it is governed", func() bool { return n.Metrics().Governed == 1 })
	defer func() { _ = syscall.Kill(p.child, syscall.SIGKILL) }()
	if m := n.Metrics(); m.Governed != 1 {
		t.Errorf("%+v", m)
	}
	p.kill()
	until.True(t, "the governor hears of the end", func() bool { return g.ended() == 1 })
}

// An agent that stops lets the governor know.
func TestStopWithSteps(t *testing.T) {
	g := &fakeGovernor{}
	n := newCell(t, "tcp").start("n", governed(g))
	wire, _ := greet(t, n, stepsHello("e", &doorpb.Steps{}))
	decided(t, tell(t, wire, &doorpb.Step{Number: 1}))
	n.stop(t)
	if g.ended() != 1 {
		t.Error("the governor has not heard of it")
	}
	if _, err := wire.Read(door.MaxFrameBytes); err == nil {
		t.Error("it goes on")
	}
}

package engine

import (
	"context"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"meridian/decide/block"
	"meridian/decide/entropy"
	"meridian/decide/governor"
	"meridian/decide/policy"
	"meridian/engine/batch"
	"meridian/kv"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
	"meridian/serve/governing"
)

// A world has engines, the agent that governs them and the cache that keeps what leaves their
// memory, in the time of testing/synctest. What runs is what ships: the step loop and the
// scheduler of the engines, their part in steps and decisions, serve/governing and all below.
// Made up are the model (a hash of its KV), the way between engine and agent, the cache, the
// clients, and the trouble, which a seed draws.
type governedWorld struct {
	t       testing.TB
	seed    uint64
	faults  worldFaults
	options governing.Options
	cell    *cell
	engines []*worldEngine
	clients sync.WaitGroup
	trouble sync.WaitGroup

	mu        sync.Mutex           // protects the rest; taken last
	governors *governing.Governors // nil: the agent is dead
	twins     *governing.Governors // to compare with
	hangUntil time.Time
	done      bool
	failures  []string
	story     hash.Hash64
	asked     map[string]*Request
	answers   []worldAnswer
	decisions map[string]int
}

// worldFaults is the trouble that a world has.
type worldFaults struct{ delay, hang, lose, kill, store, slow, stale, mad, meter, cancel, wilful bool }

func drawFaults(dice *rand.Rand, seed uint64) (f worldFaults) {
	f.meter = dice.IntN(3) == 0
	if seed%5 == 0 {
		return f
	}
	for _, fault := range []*bool{&f.delay, &f.hang, &f.lose, &f.kill, &f.store, &f.slow, &f.stale, &f.mad, &f.cancel, &f.wilful} {
		*fault = dice.IntN(2) == 0
	}
	return f
}

// quiet: nothing goes wrong.
func (f worldFaults) quiet() bool { f.meter = false; return f == worldFaults{} }

// worldEngine is one engine of a world.
type worldEngine struct {
	world  *governedWorld
	engine *Engine
	link   *worldLink
	door   *testDoor
	// Under the world's mu: when a client last got a token from it, and who waits for one.
	last time.Time
	open map[string]time.Time
	// fetched is the watch's: when it last saw that something is fetched.
	fetched time.Time
	// Of its step loop: when it last had a step, and how often it had failed open by then.
	stepped time.Time
	opened  uint64
}

// worldAnswer is what a client got.
type worldAnswer struct {
	request Request
	traced  bool // its engine plays a trace
	told    []told
	result  Result
	err     error
}

const (
	// stands is how long an engine that has requests may give none a token: as long as it
	// waits for a governor that is silent and for what was found to come, and a bit.
	stands = governorSilence + foundPatience + deadlineGrace + time.Second
	// patient is how much later than it may something is seen to happen: after a step and a wait.
	patient = 100 * time.Millisecond
	// idles is how long an engine that fetches nothing may give no request a token.
	idles = governorSilence + restPatience + findPatience + patient
	// starves is how long a request may wait for its next token.
	starves = 5 * time.Second
	// troubleTime is after what time nothing goes wrong any more.
	troubleTime = 12 * time.Second
)

func (w *governedWorld) broke(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failures = append(w.failures, fmt.Sprintf(format, args...)); len(w.failures) == 1 {
		fmt.Fprintf(os.Stderr, "world %d: %s\n", w.seed, w.failures[0]) // should it not come to its end
	}
	w.done = true
}

func (w *governedWorld) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

func (w *governedWorld) agent() *governing.Governors {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.governors
}

func (w *governedWorld) agentTwin() *governing.Governors {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.twins
}

// comes lets an agent begin, that knows nothing.
func (w *governedWorld) comes() {
	g, err := governing.New(w.options)
	twins, second := governing.New(w.options)
	if err != nil || second != nil {
		w.broke("the agent does not come: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.governors, w.twins = g, twins
}

func (w *governedWorld) hangs() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hangUntil
}

func (w *governedWorld) request(id string) *Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[id]
}

// tell and take make the story, by which two runs of a seed are compared.
func (w *governedWorld) tell(engine string, wire []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprint(w.story, time.Now().UnixNano(), engine)
	w.story.Write(wire)
}

func (w *governedWorld) take(engine string, d *doorpb.Decision) {
	wire, _ := proto.MarshalOptions{Deterministic: true}.Marshal(d)
	w.tell(engine, wire)
}

func (w *governedWorld) noteDecision(d *doorpb.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range map[string]int{
		"pause": len(d.GetPause()), "preempt": len(d.GetPreempt()), "copy": len(d.GetCopyOut()), "evict": len(d.GetEvict()),
		"recall": len(d.GetRecall()), "fork": len(d.GetFork()), "force": len(d.GetForce()),
	} {
		w.decisions[name] += n
	}
}

// newWorld draws a world.
func newWorld(t testing.TB, seed uint64) *governedWorld {
	dice := rand.New(rand.NewPCG(seed, 1))
	w := &governedWorld{
		t: t, seed: seed, faults: drawFaults(dice, seed), cell: newCell(), story: fnv.New64a(), asked: make(map[string]*Request), decisions: make(map[string]int),
	}
	source, err := openServedModel("tiny", 0)
	if err != nil {
		t.Fatal(err)
	}
	w.options = governing.Options{
		Policy: policy.Names()[int(seed)%len(policy.Names())], PreemptMaxFraction: 0.5, OffloadThreshold: int32(1 + dice.IntN(4)), Store: dice.IntN(4) > 0,
		Memory: block.Options{ThinkFraction: 0.4}, Wait: 2 * time.Millisecond, Now: time.Now,
		Model: func(string) (governing.Model, error) {
			return governing.Model{Phase: source.thoughts, Texts: source.tokenizer.Text}, nil
		},
		Budget: governor.Budget{MaxThinkTokens: int32(20 + dice.IntN(80)), Entropy: dice.IntN(2) == 0},
	}
	w.options.Budget.Probe = entropy.Options{Alpha: 0.5, EATVariance: 0.05, EATInterval: 3, RPDI: 1.5, Transition: 2, MinThinkTokens: dice.IntN(12)}
	if dice.IntN(2) == 0 {
		w.options.Scheduling = policy.Options{ThinkCap: 60, Quantum: 8, DemoteAfter: 24}
	}
	w.comes()
	w.cell.trouble.dice = rand.New(rand.NewPCG(seed, 2))
	for i := range 1 + dice.IntN(3) {
		w.open(i, dice)
	}
	return w
}

// open lets an engine come.
func (w *governedWorld) open(i int, dice *rand.Rand) {
	running := 3 + dice.IntN(6)
	o := Options{
		ID: fmt.Sprintf("engine-%d", i), Model: "tiny", Reasoning: true, BlockTokens: 8, Blocks: 23 + dice.IntN(24), MaxRunning: running, StepTokens: running + dice.IntN(40),
	}
	if w.options.Budget.Entropy && dice.IntN(2) == 0 {
		o.Trace = worldTrace(10 + dice.IntN(40))
	}
	made := &worldEngine{world: w, open: make(map[string]time.Time)}
	made.link = &worldLink{of: made, dice: rand.New(rand.NewPCG(w.seed, uint64(10+i)))}
	made.link.ledger = stepLedger{of: made, all: make(map[uint64]*ledgerLine)}
	o.Governor = made.link
	o.OnStep = func(Step) { made.check() }
	e := hashEngine(w.t, o)
	made.engine = e
	cost := rand.New(rand.NewPCG(w.seed, uint64(20+i)))
	e.runner.(*hashModel).took = func(tokens int) time.Duration {
		return 4*time.Millisecond + time.Duration(tokens)*100*time.Microsecond + time.Duration(cost.IntN(100_000))
	}
	made.door = &testDoor{cell: w.cell, engine: e, serving: true, running: make(map[testHandOff]bool)}
	e.door = worldDoor{made.door, w}
	if w.cell.fakeCache == nil {
		w.cell.fakeCache = newWorldCache(e)
	}
	w.engines = append(w.engines, made)
	made.link.connect()
	e.start()
}

// worldTrace is of a thought that settles after so many tokens.
func worldTrace(settles int) *Trace {
	trace := &Trace{ParagraphTokens: 4, Tokens: []float32{2, 1, 3, 1}}
	for i := range 80 {
		trace.Forks = append(trace.Forks, max(0.5, float32(i%5)*float32(min(1, max(0, settles-i)))))
	}
	return trace
}

// hashEngine makes an engine whose model is a hash, and that does not run yet.
func hashEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := prepare(o)
	if err == nil {
		_, err = e.openMemory()
	}
	if err != nil {
		t.Fatal(err)
	}
	if e.runner, err = newHashModel(e); err != nil {
		t.Fatal(err)
	}
	return e
}

// newWorldCache is a cache that is large enough for a world.
func newWorldCache(e *Engine) *fakeCache {
	layout, _ := kv.ParseLayout("BLHNC")
	s := &fakeCache{unit: 16, blocks: make(map[kv.BlockKey]uint32), side: sideOf(e)}
	s.side.Layout, s.side.BlockTokens, s.side.Blocks = layout, s.unit, 1024
	size, err := s.side.MemoryBytes(0)
	if err != nil {
		panic(err)
	}
	s.memory = make([]byte, size)
	return s
}

// worldDoor is a door whose calls take time. How much depends on what is asked and not on
// who asks first, so that a seed has one story.
type worldDoor struct {
	*testDoor
	world *governedWorld
}

func (d worldDoor) wait(what uint64, tokens []uint32) {
	h := scatter(d.world.seed, what)
	for _, t := range tokens {
		h = scatter(h, uint64(t))
	}
	h = scatter(h, uint64(time.Now().UnixNano()))
	took := 100*time.Microsecond + time.Duration(h%uint64(time.Millisecond))
	if d.world.faults.slow && h%8 == 0 {
		took += time.Duration(h % uint64(600*time.Millisecond))
	}
	time.Sleep(took)
}

func (d worldDoor) Keep(ctx context.Context, k door.Keep) error {
	d.wait(1, k.Tokens)
	return d.testDoor.Keep(ctx, k)
}

func (d worldDoor) Find(ctx context.Context, f door.Find) (door.Found, error) {
	d.wait(2, f.Tokens)
	return d.testDoor.Find(ctx, f)
}

func (d worldDoor) Accept(ctx context.Context, a door.Accept) ([16]byte, error) {
	d.wait(3, a.Tokens)
	return d.testDoor.Accept(ctx, a)
}

func (d worldDoor) Cancel(ctx context.Context, what door.Cancel) error {
	d.wait(4, nil)
	return d.testDoor.Cancel(ctx, what)
}

// check looks at an engine after a step, on its step loop.
func (m *worldEngine) check() {
	e := m.engine
	used := make(map[uint32]bool)
	for _, q := range sequences(e) {
		for _, b := range q.Blocks() {
			used[b] = true
		}
	}
	silent := m.checkPauses()
	for _, c := range e.known {
		if c.sequence.Paused()&batch.Governed != 0 && c.swap == nil && silent > governorSilence+patient {
			m.world.broke("engine %s has sequence %d wait for a governor that is silent for %v", e.options.ID, c.governed, silent)
		}
		if c.fork != nil {
			for _, b := range c.fork.sequence.Blocks() {
				used[b] = true
			}
		}
		if e.terms != nil && (!c.told.begun || c.told.tokens != len(c.sequence.Tokens)) {
			m.world.broke("engine %s: the governor was not told all of sequence %d: %+v", e.options.ID, c.governed, c.told)
		}
	}
	s := e.scheduler.Stats()
	if taken := s.Total - s.Free - s.Cached; len(used) > taken || taken > len(used)+s.Held {
		m.world.broke("engine %s: %d blocks are in use, of %d those that have them know of %d and the door of %d", e.options.ID, taken, s.Total, len(used), s.Held)
	}
}

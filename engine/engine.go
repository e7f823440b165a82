package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/engine/batch"
	"meridian/engine/model"
	"meridian/kv"
	"meridian/move/mem"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// runner computes steps; model.Runner does.
type runner interface {
	Step(batch []model.Slice) error
}

// doorClient is the engine's side of the door; door.Client is one.
type doorClient interface {
	Serving() bool
	Offer(ctx context.Context, o door.Offer) (ticket []byte, err error)
	Progress(transfer [16]byte, layers, tokens int)
	Accept(ctx context.Context, a door.Accept) (transfer [16]byte, err error)
	Cancel(ctx context.Context, what door.Cancel) error
	Cache() (door.CacheTerms, bool)
	Keep(ctx context.Context, k door.Keep) error
	Find(ctx context.Context, f door.Find) (door.Found, error)
	Close(ctx context.Context) error
}

// Engine serves one model.
type Engine struct {
	options Options
	source  *servedModel
	cut     model.Cut
	arenas  []*mem.Arena
	runner  runner
	door    doorClient // nil: serve alone
	started time.Time
	cutText string

	life       context.Context // of everything that runs in the background
	stop       context.CancelFunc
	background sync.WaitGroup
	loopDone   chan struct{}
	wake       chan struct{} // has room for one

	mu      sync.Mutex // protects the following
	inbox   []func()
	seats   int // answers that wait to be admitted for the first time
	closing bool
	stats   Stats

	news progressUpdates // of offers that are being computed, for the agent
	loop                 // what only the step loop touches
}

// loop is the step loop's.
type loop struct {
	scheduler *batch.Scheduler
	requests  map[*request]struct{}
	slices    []model.Slice
	spare     [][]float32 // logits
	accepts   map[[16]byte]*accept
	offers    map[[16]byte]*offer
	growing   []computingPrompt // prompts of the step that runs, which are offered
	inDoubt   []*batch.Hold     // the door did not answer
	searches  int               // that the agent has not answered
	tokenTime time.Duration     // what a token of a prompt costs; 0: not known
	keeps     int               // offers that are to be kept …
	// … and the blocks that they hold, one that two hold twice.
	keptBlocks int
	counters   Counters
	doorState  string
	governed
}

// Open loads a model, makes its memory, registers with the agent if it has one,
// and begins to serve; without an agent that is away, until that is there.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(err, e.closeMemory(ctx))
	}
	return e, nil
}

// prepare makes an engine that does not run yet.
func prepare(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{started: time.Now(), loopDone: make(chan struct{}), wake: make(chan struct{}, 1)}
	if e.source, err = openServedModel(o.Model, o.Seed); err != nil {
		return nil, err
	}
	if o.Reasoning && !(e.source.thinkStart.exists && e.source.thinkEnd.exists) {
		return nil, errors.New("engine: scripted reasoning needs a tokenizer with <think> and </think>")
	}
	if o.Trace != nil {
		if err := o.Trace.check(); err != nil || !o.Reasoning {
			return nil, errors.Join(errors.New("engine: a trace of entropies needs scripted reasoning"), err)
		}
	}
	if e.cut, err = o.cut(e.source.model.Config()); err != nil {
		return nil, err
	}
	if err := o.batch().Validate(); err != nil {
		return nil, err
	}
	e.options, e.cutText = o, e.describeCut()
	e.loop = loop{
		scheduler: batch.New(o.batch()), requests: make(map[*request]struct{}),
		accepts: make(map[[16]byte]*accept), offers: make(map[[16]byte]*offer), doorState: "absent",
		governed: governed{governor: o.Governor, byNumber: make(map[uint64]*choice), columns: &doorpb.Step{}},
	}
	e.life, e.stop = context.WithCancel(context.Background())
	return e, nil
}

func (e *Engine) open(ctx context.Context) error {
	r, err := e.openMemory()
	if err != nil {
		return err
	}
	r.Threads = e.options.Threads
	e.runner = r
	if e.options.Door != "" {
		client, err := e.openDoor(ctx)
		if err != nil {
			return err
		}
		e.door = client
		if e.governor == nil && !e.options.Ungoverned {
			e.openGovernor(ctx)
		}
	}
	e.start()
	return nil
}

func (e *Engine) openMemory() (*model.Runner, error) {
	var memory [][]byte
	for rank := range e.cut.Parallelism.Ranks() {
		size := uint64(e.cut.MemoryBytes(e.source.model.Config(), rank))
		a, err := mem.NewArena(mem.ArenaOptions{Name: fmt.Sprintf("%s-kv-%d", e.options.ID, rank), SizeBytes: size, NUMANode: -1})
		if err != nil {
			return nil, err
		}
		e.arenas = append(e.arenas, a)
		memory = append(memory, a.Bytes(0, size))
	}
	r, err := model.NewRunner(e.source.model, e.cut, memory)
	if err == nil {
		r.LayerDone = e.layerDone
	}
	return r, err
}

// start begins to serve. What the engine is made of must be there.
func (e *Engine) start() {
	switch {
	case e.door == nil:
	case e.door.Serving():
		e.doorState = "serving"
	default: // until the agent says so
		e.doorState = "lost"
	}
	e.publishStats()
	go e.run()
}

// sections is each rank's memory.
func (e *Engine) sections() []*mem.Section {
	sections := make([]*mem.Section, len(e.arenas))
	for i, a := range e.arenas {
		sections[i] = a.Section
	}
	return sections
}

// publication is what the agent is told of the cache.
func (e *Engine) publication() door.Publication {
	return door.Publication{
		Geometry: e.source.model.Config().Geometry(), Parallelism: e.cut.Parallelism, Layout: e.cut.Layout, Packing: kv.Packing{},
		BlockTokens: e.cut.BlockTokens, Blocks: e.cut.Blocks, Scope: e.source.scope,
	}
}

func (e *Engine) openDoor(ctx context.Context) (*door.Client, error) {
	return door.Open(ctx, door.Options{
		Socket: e.options.Door, Engine: e.options.ID, URL: e.options.URL, Role: e.options.Role, Model: e.options.ServedName,
		Publish: e.publication(), Memory: e.sections(), AgentMayBeAway: true, Software: "meridian-engine", Logger: e.options.Logger,
		Events: func(event door.Event) { e.post(func() { e.happened(event) }) },
	})
}

// openGovernor tells the agent of steps, if it wants to hear of them: one that governs no
// engines is no reason not to serve.
func (e *Engine) openGovernor(ctx context.Context) {
	steps, err := door.OpenSteps(ctx, door.StepsOptions{
		Socket: e.options.Door, Engine: e.options.ID, About: e.aboutSteps(), AgentMayBeAway: true, Software: "meridian-engine", Logger: e.options.Logger,
	})
	if err != nil {
		e.options.Logger.Info("no governor for this engine; it goes by its own order", "engine", e.options.ID, "error", err)
		return
	}
	e.governor = steps
}

// post has the step loop run f between two steps.
func (e *Engine) post(f func()) {
	e.mu.Lock()
	e.inbox = append(e.inbox, f)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// inBackground runs f beside the step loop; Close waits for it.
func (e *Engine) inBackground(f func(ctx context.Context)) {
	e.background.Add(1)
	go func() {
		defer e.background.Done()
		f(e.life)
	}()
}

// Submit begins a request. Its answers come in the stream; when ctx ends it is
// cancelled. The lists in r must not change any more.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	r, err := e.settle(r)
	if err != nil {
		return nil, err
	}
	if r.Unused && r.Ticket != nil && e.door != nil {
		// Also where there is no seat; the caller waits, so that there are no more of
		// these than callers.
		e.cancelAtDoor(ctx, door.Cancel{Ticket: r.Ticket})
		r.Ticket = nil
	}
	choices := len(r.Prompts) * r.N
	e.mu.Lock()
	switch {
	case e.closing:
		err = ErrClosed
	case e.seats+choices > e.options.MaxWaiting:
		err = fmt.Errorf("%w: %d answers wait", ErrBusy, e.seats)
	default:
		e.seats += choices
	}
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	q := e.newRequest(r)
	unwatch := context.AfterFunc(ctx, func() { e.post(func() { e.cancel(q, context.Cause(ctx)) }) })
	e.post(func() {
		q.unwatch = unwatch
		e.begin(q)
	})
	return q.stream, nil
}

// Closing reports whether the engine takes no more requests.
func (e *Engine) Closing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}

// Close takes no more requests and waits for those there are, and for a moment
// for caches that others still fetch, until ctx ends; what is left is then
// cancelled. It returns when nothing runs any more and the memory is gone. Of the
// time until a deadline the last part, closeGrace at most and leastGrace at least,
// is for the agent, which may still touch the memory; where ctx is cancelled, it has
// that time afterwards.
func (e *Engine) Close(ctx context.Context) error {
	draining, drained, grace := ctx, context.CancelFunc(func() {}), closeGrace
	if deadline, bounded := ctx.Deadline(); bounded {
		grace = max(leastGrace, min(grace, time.Until(deadline)/2))
		draining, drained = context.WithDeadline(ctx, deadline.Add(-grace))
	}
	defer drained()
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.post(func() {})
	patience := time.AfterFunc(offerGrace, func() { e.post(e.withdrawAll) })
	defer patience.Stop()
	select {
	case <-e.loopDone:
	case <-draining.Done():
		e.post(e.abandon)
		<-e.loopDone
	}
	e.stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var err error
	if e.door != nil {
		err = e.door.Close(last)
	}
	if e.governor != nil {
		e.governor.Close()
	}
	e.background.Wait()
	if err != nil {
		return err
	}
	return e.closeMemory(last)
}

const (
	closeGrace = 5 * time.Second
	leastGrace = 100 * time.Millisecond
	// offerGrace is how long a closing engine waits for others to fetch what it
	// has offered.
	offerGrace = 2 * time.Second
)

func (e *Engine) closeMemory(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	var err error
	for _, a := range e.arenas {
		err = errors.Join(err, a.Close(ctx))
	}
	return err
}

// Package warm has idle engines compute prompts ahead: next turns of chats, as far as they are
// known, and what operators ask for. It learns what templates do with thoughts.
package warm

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/internal/budget"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// Warmer has idle engines compute the next turns of chats ahead, as far as they are
// known, so that what they compute is kept in the cell. It is never in the way: one
// history at a time and engine, none where a request waits, and one that is being
// computed is given up when a request comes.
//
//	answer ends ──► waiting ──an engine is idle──► working ──► warmed, failed
//	      └─ unfit, full    └─ late, full, stopped      └─ unfit, busy, stopped
//
// Where it is not to compute anything ahead, it learns what templates do with thoughts, and no more.
type Warmer struct {
	options Options
	ctx     context.Context // ends when the gateway drains
	cancel  context.CancelFunc
	active  sync.WaitGroup
	memory  budget.Budget // of answers that are gathered, and of histories
	news    chan struct{} // something is there to look at

	mu       sync.Mutex // protects what follows; the roster's is taken under it
	queue    queue
	working  map[*roster.Engine]context.CancelCauseFunc
	learning bool // an engine is being asked what a template does
	// templates are those that strip thoughts, with the tokens that end one, and those that do
	// not, with none.
	templates map[Template][]uint32

	ends   [len(ends)]atomic.Uint64
	tokens [2]atomic.Uint64 // of histories that were warmed: all, and those of them that were not computed
}

// ends are what becomes of next turns, in the order of the constants below.
var ends = [...]string{"warmed", "failed", "busy", "full", "late", "stopped", "unfit"}

type end uint8

const (
	warmed      end = iota
	warmFailed      // the engine refused it, was lost, or took too long
	warmBusy        // given up for a request
	warmFull        // as many wait as may, or their memory is spent
	warmLate        // no engine had time for it
	warmStopped     // the gateway stopped
	warmUnfit       // the answer calls tools, is too long, or is no text
)

const (
	warmMemory = 64 << 20
	// maxWarming is how many engines compute histories at a time.
	maxWarming = 16
	// warmPause is how often engines are looked at while a history waits or is computed.
	warmPause = 10 * time.Millisecond
	// warmTimeout bounds one history, where prompts of requests may take as long.
	warmTimeout = 30 * time.Second
	// lowestPriority is for schedulers of vLLM that go by it: who has a lower number
	// is served first.
	lowestPriority = "1000000"
)

// errBusy ends what is computed ahead when a request comes.
var errBusy = errors.New("a request came")

// Options of a warmer.
type Options struct {
	// Ahead: next turns are computed ahead.
	Ahead    bool
	Roster   *roster.Roster
	Upstream *upstream.Client
	// Crowded tells whether requests wait for their turn.
	Crowded func() bool
	// LegKey seals the gateway's word for what is computed; nil where there is no cell.
	LegKey *[32]byte
	// Timeout bounds one prompt.
	Timeout time.Duration
	Logger  *slog.Logger
}

// New computes until life ends, or Stop is called.
func New(life context.Context, o Options) *Warmer {
	w := &Warmer{options: o, memory: budget.Budget{Limit: warmMemory}, news: make(chan struct{}, 1), working: make(map[*roster.Engine]context.CancelCauseFunc), templates: make(map[Template][]uint32)}
	w.ctx, w.cancel = context.WithCancel(life)
	if o.Ahead {
		w.active.Go(w.run)
	}
	return w
}

// Stop has nothing new computed ahead.
func (w *Warmer) Stop() { w.cancel() }

// Wait waits for what it has begun, after Stop.
func (w *Warmer) Wait() { w.active.Wait() }

// Held is how much memory it holds.
func (w *Warmer) Held() int64 { return w.memory.Used() }

// Gather is where an answer of this request is gathered, nil where it is not worth it.
func (w *Warmer) Gather(c *request.Request) *AnswerRecorder {
	if !w.options.Ahead || !c.MayWarm() {
		return nil
	}
	return &AnswerRecorder{text: budget.Held{Budget: &w.memory}}
}

// Ended is a request that has ended.
type Ended struct {
	Request  *request.Request
	Answer   *AnswerRecorder // its answer, as gather gave it
	Finished bool            // the client has all of it
	Finish   string          // why the engine ended it
	Thought  int             // tokens of it that were thought
}

// Answered takes in that a request has ended. Nothing waits for what comes of it: the
// history is written when an engine has time for it, not while the request has its place.
func (w *Warmer) Answered(a Ended) {
	s := a.Answer
	if !w.options.Ahead {
		w.learnFrom(a)
	}
	if s == nil {
		return
	}
	ended := a.Finish == openai.FinishStop || a.Finish == openai.FinishLength
	switch {
	case !a.Finished || !s.thoughtful() || len(s.text.Data) == 0 && !s.unfit:
		return // there is nothing that the next turn would have and an engine has not
	case s.unfit || !ended:
		w.count(warmUnfit)
		return
	}
	h := historyOf(a.Request, s.text.Data)
	h.template.Beside = s.thought
	if !w.memory.Hold(h.weight) {
		w.count(warmFull)
		return
	}
	w.queueUp(h)
}

func (w *Warmer) queueUp(h *history) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil { // run does not look any more, or looks once when it has the lock
		w.drop(h, warmStopped)
		return
	}
	if left := w.queue.push(h, time.Now()); left != nil {
		w.drop(left, warmFull)
	}
	w.look()
}

// look has run look at the queue soon.
func (w *Warmer) look() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *Warmer) count(end end) { w.ends[end].Add(1) }

func (w *Warmer) drop(h *history, end end) {
	w.count(end)
	w.memory.Release(h.weight)
}

// run starts and gives up until the gateway drains.
func (w *Warmer) run() {
	for w.ctx.Err() == nil {
		var again <-chan time.Time
		if w.round(time.Now()) {
			again = time.After(warmPause)
		}
		select {
		case <-w.news:
		case <-again:
		case <-w.ctx.Done():
		}
	}
	w.mu.Lock()
	left := w.queue.waiting
	w.queue.waiting = nil
	w.mu.Unlock()
	for _, h := range left {
		w.drop(h.history, warmStopped)
	}
}

// round looks at the engines once, and tells whether that must be done again.
func (w *Warmer) round(now time.Time) bool {
	crowded := w.options.Crowded()
	engines := w.options.Roster.All()
	w.mu.Lock()
	defer w.mu.Unlock()
	for e, cancel := range w.working {
		if crowded || !e.IsIdle() {
			cancel(errBusy)
		}
	}
	for _, h := range w.queue.late(now) {
		w.drop(h, warmLate)
	}
	if len(w.queue.waiting) > 0 && !crowded {
		w.start(engines, now)
	}
	return len(w.queue.waiting)+len(w.working) > 0
}

// start gives histories to engines that have time. The caller holds mu.
func (w *Warmer) start(engines []*roster.Engine, now time.Time) {
	var idle []idleEngine
	for _, e := range engines {
		if _, works := w.working[e]; !works && e.MayWarm() && e.IsIdle() {
			idle = append(idle, idleEngine{e, func(p placement.Prefix) int { return w.options.Roster.Holds(e.Key, p, now) }})
		}
	}
	for len(w.working) < maxWarming && len(idle) > 0 {
		h, e := w.queue.next(idle)
		if h == nil {
			return
		}
		idle = slices.DeleteFunc(idle, func(other idleEngine) bool { return other.Engine == e })
		ctx, cancel := context.WithCancelCause(w.ctx)
		w.working[e] = cancel
		w.active.Go(func() { w.compute(ctx, e, h) })
	}
}

// compute has an engine compute a history.
func (w *Warmer) compute(ctx context.Context, e *roster.Engine, h *history) {
	var computed ComputedPrompt
	var trouble *lifecycle.Trouble
	fits := h.write()
	if fits {
		bounded, done := context.WithTimeout(ctx, min(warmTimeout, w.options.Timeout))
		defer done()
		computed, trouble = w.ComputePrompt(bounded, e, PromptLeg{Path: openai.PathChat, Body: h.body, Tenant: h.tenant})
	}
	end := warmed
	switch {
	case !fits:
		end = warmUnfit
	case trouble == nil:
		w.tokens[0].Add(uint64(computed.PromptTokens))
		w.tokens[1].Add(uint64(computed.CachedTokens))
		w.options.Roster.ComputedAhead(e, h.prefix, time.Now())
		if h.foreseen {
			w.Learn(ctx, e, h.template)
		}
	case w.ctx.Err() != nil:
		end = warmStopped
	case errors.Is(context.Cause(ctx), errBusy):
		end = warmBusy
	default:
		end = warmFailed
		// What the engine said may have text of the prompt in it.
		w.options.Logger.Debug("a next turn was not computed ahead", "engine", e.Name(), "status", trouble.Fault.Status)
	}
	w.mu.Lock()
	w.working[e](nil)
	delete(w.working, e)
	w.mu.Unlock()
	w.drop(h, end)
	w.look()
}

// Metrics are of next turns that are computed ahead.
type Metrics struct {
	Waiting int `metric:"meridian_gateway_warming,waiting"`
	Working int `metric:"meridian_gateway_warming,working"`
	// Ends by what became of them; Tokens of those that were warmed, and Cached those of
	// them that the engine had or found, instead of computing them.
	Ends   map[string]uint64 `metric:"meridian_gateway_warm_total"`
	Tokens uint64            `metric:"meridian_gateway_warm_tokens_total,computed" less:"Cached"`
	Cached uint64            `metric:"meridian_gateway_warm_tokens_total,cached"`
}

// Metrics may be called at any time.
func (w *Warmer) Metrics() Metrics {
	m := Metrics{Ends: make(map[string]uint64, len(ends))}
	for i, name := range ends {
		m.Ends[name] = w.ends[i].Load()
	}
	m.Tokens, m.Cached = w.tokens[0].Load(), w.tokens[1].Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	m.Waiting, m.Working = len(w.queue.waiting), len(w.working)
	return m
}

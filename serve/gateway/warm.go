package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"meridian/decide/placement"
	"meridian/internal/budget"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/openai"
)

// warmer has idle engines compute the next turns of chats ahead, as far as they are
// known, so that what they compute is kept in the cell. It is never in the way: one
// history at a time and engine, none where a request waits, and one that is being
// computed is given up when a request comes.
//
//	answer ends ──► waiting ──an engine is idle──► working ──► warmed, failed
//	      └─ unfit, full    └─ late, full, stopped      └─ unfit, busy, stopped
//
// Where it is not to compute anything ahead, it learns what templates do with thoughts, and no more.
type warmer struct {
	g      *Gateway
	ahead  bool            // next turns are computed ahead
	ctx    context.Context // ends when the gateway drains
	stop   context.CancelFunc
	memory budget.Budget // of answers that are gathered, and of histories
	news   chan struct{} // something is there to look at

	mu       sync.Mutex // protects what follows; the roster's is taken under it
	queue    warmQueue
	working  map[*roster.Engine]context.CancelCauseFunc
	learning bool // an engine is being asked what a template does
	// templates are those that strip thoughts, with the tokens that end one, and those that do
	// not, with none.
	templates map[template][]uint32

	ends   [len(warmEnds)]atomic.Uint64
	tokens [2]atomic.Uint64 // of histories that were warmed: all, and those of them that were not computed
}

// warmEnds are what becomes of next turns, in the order of the constants below.
var warmEnds = [...]string{"warmed", "failed", "busy", "full", "late", "stopped", "unfit"}

type warmEnd uint8

const (
	warmed      warmEnd = iota
	warmFailed          // the engine refused it, was lost, or took too long
	warmBusy            // given up for a request
	warmFull            // as many wait as may, or their memory is spent
	warmLate            // no engine had time for it
	warmStopped         // the gateway stopped
	warmUnfit           // the answer calls tools, is too long, or is no text
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

func newWarmer(g *Gateway) *warmer {
	w := &warmer{g: g, ahead: g.options.WarmNextTurn, memory: budget.Budget{Limit: warmMemory}, news: make(chan struct{}, 1), working: make(map[*roster.Engine]context.CancelCauseFunc), templates: make(map[template][]uint32)}
	w.ctx, w.stop = context.WithCancel(g.life)
	return w
}

// gather is where an answer of this request is gathered, nil where it is not worth it.
func (w *warmer) gather(c *request.Request) *said {
	if !w.ahead || !c.MayWarm() {
		return nil
	}
	return &said{text: budget.Held{Budget: &w.memory}}
}

// answered takes in that a request has ended. Nothing waits for what comes of it: the
// history is written when an engine has time for it, not while the request has its place.
func (w *warmer) answered(x *exchange) {
	s := x.said
	if !w.ahead {
		w.learnFrom(x)
	}
	if s == nil {
		return
	}
	ended := x.answer.finish == openai.FinishStop || x.answer.finish == openai.FinishLength
	switch {
	case x.rec.Outcome != ledger.Finished || !s.thoughtful() || len(s.text.Data) == 0 && !s.unfit:
		return // there is nothing that the next turn would have and an engine has not
	case s.unfit || !ended:
		w.count(warmUnfit)
		return
	}
	h := historyOf(x.request, s.text.Data)
	h.template.beside = s.thought
	if !w.memory.Hold(h.weight) {
		w.count(warmFull)
		return
	}
	w.wait(h)
}

func (w *warmer) wait(h *history) {
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
func (w *warmer) look() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *warmer) count(end warmEnd) { w.ends[end].Add(1) }

func (w *warmer) drop(h *history, end warmEnd) {
	w.count(end)
	w.memory.Release(h.weight)
}

// run starts and gives up until the gateway drains. What it starts is the gateway's to
// wait for.
func (w *warmer) run() {
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
func (w *warmer) round(now time.Time) bool {
	_, waiting, _ := w.g.admission.Counts()
	crowded := waiting > 0
	engines := w.g.roster.All()
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
func (w *warmer) start(engines []*roster.Engine, now time.Time) {
	var idle []idleEngine
	for _, e := range engines {
		if _, works := w.working[e]; !works && e.MayWarm() && e.IsIdle() {
			idle = append(idle, idleEngine{e, func(p placement.Prefix) int { return w.g.roster.Holds(e.Key, p, now) }})
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
		w.g.active.Go(func() { w.compute(ctx, e, h) })
	}
}

// compute has an engine compute a history.
func (w *warmer) compute(ctx context.Context, e *roster.Engine, h *history) {
	var computed ComputedPrompt
	var trouble *lifecycle.Trouble
	fits := h.write()
	if fits {
		bounded, done := context.WithTimeout(ctx, min(warmTimeout, w.g.options.PrefillTimeout))
		defer done()
		computed, trouble = w.g.computePrompt(bounded, e, promptLeg{path: openai.PathChat, body: h.body})
	}
	end := warmed
	switch {
	case !fits:
		end = warmUnfit
	case trouble == nil:
		w.tokens[0].Add(uint64(computed.PromptTokens))
		w.tokens[1].Add(uint64(computed.CachedTokens))
		w.g.roster.ComputedAhead(e, h.prefix, time.Now())
		w.learn(ctx, e, h)
	case w.ctx.Err() != nil:
		end = warmStopped
	case errors.Is(context.Cause(ctx), errBusy):
		end = warmBusy
	default:
		end = warmFailed
		// What the engine said may have text of the prompt in it.
		w.g.options.Logger.Debug("a next turn was not computed ahead", "engine", e.Name(), "status", trouble.Fault.Status)
	}
	w.mu.Lock()
	w.working[e](nil)
	delete(w.working, e)
	w.mu.Unlock()
	w.drop(h, end)
	w.look()
}

// WarmMetrics are of next turns that are computed ahead.
type WarmMetrics struct {
	Waiting, Working int
	// Ends by what became of them; Tokens of those that were warmed, and Cached those of
	// them that the engine had or found, instead of computing them.
	Ends           map[string]uint64
	Tokens, Cached uint64
}

func (w *warmer) metrics() WarmMetrics {
	m := WarmMetrics{Ends: make(map[string]uint64, len(warmEnds))}
	for i, name := range warmEnds {
		m.Ends[name] = w.ends[i].Load()
	}
	m.Tokens, m.Cached = w.tokens[0].Load(), w.tokens[1].Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	m.Waiting, m.Working = len(w.queue.waiting), len(w.working)
	return m
}

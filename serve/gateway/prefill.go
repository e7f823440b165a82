package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// prefillRun is a prefill leg on its way. A decode leg may be on its way at the
// same time, promised what this one is to offer; it goes by alive.
type prefillRun struct {
	engine   *roster.Engine
	transfer kv.ID
	traced   trust.Trace
	path     string // of its endpoint; "": the client's
	began    time.Time
	cancel   context.CancelFunc
	// alive ends when this leg has failed, unless its cache was used by then.
	alive context.Context
	lose  context.CancelFunc
	fate  atomic.Uint32 // used or forfeit, whichever came first

	done     chan struct{} // closed after the rest is written
	took     time.Duration
	params   json.RawMessage // nil: nothing was offered
	report   *openai.Report  // nil: the engine says nothing
	usage    openai.Usage
	trouble  *lifecycle.Trouble
	panicked string // the panic that ended the leg, and where
}

// What may become of a promised cache.
const (
	undecided uint32 = iota
	used
	forfeit
)

// failed tells whether a decode leg was ended because this one has failed. nil is
// a leg that no decode engine was promised anything of.
func (p *prefillRun) failed() bool { return p != nil && p.alive.Err() != nil }

// use: the decode leg has the beginning of its answer, so it has all it needs of
// this one. It returns false where that comes too late: the leg has failed, and
// the decode leg is given up.
func (p *prefillRun) use() bool {
	return p == nil || p.fate.CompareAndSwap(undecided, used) || p.fate.Load() == used
}

// failDecode ends the decode leg that waits for this one, unless it has all it needs.
func (p *prefillRun) failDecode() {
	if p.fate.CompareAndSwap(undecided, forfeit) {
		p.lose()
	}
}

// over tells whether the leg has ended.
func (p *prefillRun) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// prefill sends a prefill leg. Every one has a transfer id of its own: an id
// that was offered once is never offered again.
func (x *exchange) prefill(key string) lifecycle.Step {
	e := x.g.roster.Get(key)
	if e == nil {
		return x.life.PrefillFailed(lifecycle.Trouble{Kind: lifecycle.Lost, Engine: key, Fault: openai.Unavailable("the engine is gone")})
	}
	home := e.Home.Load()
	promised := home != nil && x.mayPromise(e) // before this prompt is among those that wait there
	run := x.beginPrefill(e, x.life.Ticket.Next(upstream.NewTransfer), promised)
	if promised {
		x.g.count.promises.Add(1)
		x.promised = run
		x.life.Ticket.Hold(run.transfer, x.legs.Promise(run.transfer, home))
		return x.life.Route.Promised()
	}
	return x.endPrefill(run)
}

// mayPromise tells whether the decode engine may be asked before the prefill
// engine has answered. It keeps blocks meanwhile, so not where that takes long.
func (x *exchange) mayPromise(prefill *roster.Engine) bool {
	decode := x.g.roster.Get(x.life.Route.Decode)
	redeems := func(e *roster.Engine) bool { return e != nil && e.Home.Load() != nil && !e.Stray.Load() }
	return x.legs.Key != nil && redeems(prefill) && redeems(decode) &&
		prefill.Waiting.Load()+int64(x.life.Request.Tokens) <= int64(x.g.options.PromiseTokens)
}

// beginPrefill sends a prefill leg, and waits for its end unless it is promised.
func (x *exchange) beginPrefill(e *roster.Engine, t kv.ID, promised bool) *prefillRun {
	run := &prefillRun{engine: e, transfer: t, traced: x.trace.Leg(), began: time.Now(), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(x.ctx)
	run.cancel = cancel
	run.alive, run.lose = context.WithCancel(x.ctx)
	body := x.legs.Prefill(t, run.traced, e.About.Load(), promised)
	computed := x.g.roster.Computes(e, x.life.Request)
	work := func() {
		defer close(run.done)
		defer computed()
		defer run.keepPanic()
		run.params, run.trouble = x.prefillLeg(ctx, run, body)
		run.took = time.Since(run.began)
		if run.trouble != nil || run.params == nil {
			run.failDecode()
		}
	}
	if promised {
		go work()
	} else {
		work()
	}
	return run
}

// endPrefill waits for a prefill leg and goes on with what became of it.
func (x *exchange) endPrefill(run *prefillRun) lifecycle.Step {
	x.settle(run)
	if run.trouble != nil {
		return x.life.PrefillFailed(*run.trouble)
	}
	return x.life.Prefilled(run.transfer, run.params)
}

// keepPanic keeps a panic for the request that the leg is of: it must end that one, and
// no other.
func (p *prefillRun) keepPanic() {
	if cause := recover(); cause != nil {
		p.panicked = fmt.Sprintf("%v\n%s", cause, debug.Stack())
		p.failDecode()
	}
}

// settle waits for a prefill leg and puts it into the record.
func (x *exchange) settle(run *prefillRun) {
	<-run.done
	run.cancel()
	run.lose()
	if run.panicked != "" {
		panic(run.panicked)
	}
	record := ledger.Leg{Kind: ledger.PrefillLeg, Engine: run.engine.Name(), Transfer: run.transfer.String(), Span: upstream.SpanOf(run.traced)}
	noteFound(&record, run.report)
	x.note(record, run.began, run.took, run.trouble)
	if run.trouble == nil {
		run.engine.Served.Add(1)
		x.life.Clock.Prefill = run.took
		x.g.roster.Note(run.engine.Key, x.life.Request.Prefix, time.Now())
		x.life.Belief.Keep(run.engine.Shares())
		had, told := run.engine.Spared(run.report, &run.usage)
		x.looked(run.engine, run.report, had, told)
	}
}

// dropPromised ends a prefill leg for which no decode leg waits any more.
func (x *exchange) dropPromised(why string) {
	if run := x.promised; run != nil {
		x.promised = nil
		run.cancel()
		<-run.done
		run.trouble.GiveUp(why)
		x.settle(run)
	}
}

// lastWord is how long a prefill engine may take to answer after its cache has
// been used. All that is lost with its answer is that it is known.
const lastWord = 100 * time.Millisecond

// joinPromised waits for the end of a prefill leg whose cache was used.
func (x *exchange) joinPromised() {
	if x.promised == nil {
		return
	}
	patience := time.NewTimer(lastWord)
	defer patience.Stop()
	select {
	case <-x.promised.done:
	case <-patience.C:
	}
	x.dropPromised("its cache was used before it answered")
}

// notePromised takes the time of a prefill leg that has ended before the decode leg
// was answered.
func (x *exchange) notePromised() {
	if x.promised != nil && x.promised.over() {
		x.life.Clock.Prefill = x.promised.took
	}
}

// reported takes in what a decode engine tells of its leg. Of a hand-off that was
// promised, only what it took beyond the prefill engine's answer is its time.
func (x *exchange) reported(r *openai.Report) {
	x.life.Clock.Report(r)
	if x.promised != nil && r.HandoffMs > 0 {
		x.life.Clock.Handoff = x.promised.until(x.life.Asked.Add(openai.Milliseconds(r.QueueMs) + openai.Milliseconds(r.HandoffMs)))
	}
}

// until is how much later than the leg's end something was; never nothing, which
// would mean that it was not at all.
func (p *prefillRun) until(then time.Time) time.Duration {
	if !p.over() {
		return time.Microsecond
	}
	return max(time.Microsecond, then.Sub(p.began.Add(p.took)))
}

func (x *exchange) prefillLeg(ctx context.Context, run *prefillRun, body []byte) (json.RawMessage, *lifecycle.Trouble) {
	e := run.engine
	c, trouble := x.g.upstream.Send(ctx, upstream.Leg{
		Engine: e, Path: cmp.Or(run.path, x.life.Request.Endpoint), Body: body, Client: x.life.Request.Body, ID: run.transfer.String(), Of: x.life.Record.ID, Trace: &x.trace, Traced: run.traced, Silent: x.g.options.PrefillTimeout,
	})
	if trouble != nil {
		x.g.roster.Hurry()
		return nil, trouble
	}
	defer c.Close()
	data, trouble := c.ReadAll(upstream.MaxPrefillBytes)
	if trouble != nil {
		x.g.roster.Hurry()
		return nil, trouble
	}
	view, isObject := openai.ViewBody(data)
	if !isObject || !json.Valid(data) { // a part of it goes into another request
		return nil, upstream.NotJSON(e)
	}
	var chunk openai.Chunk
	if x.legs.Learns && chunk.Parse(data) {
		x.learn(chunk.PromptTokens)
	}
	run.report = openai.ParseReport(view.Get("meridian"))
	if json.Unmarshal(view.Get("usage"), &run.usage) != nil {
		run.usage = openai.Usage{} // it is not told
	}
	params := view.Get("kv_transfer_params")
	if len(params) == 0 || params[0] != '{' {
		return nil, nil // it has nothing to offer
	}
	return params, nil
}

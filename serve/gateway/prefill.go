package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"meridian/kv"
	"meridian/member/trust"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// prefillRun is a prefill leg on its way. A decode leg may be on its way at the
// same time, promised what this one is to offer; it goes by alive.
type prefillRun struct {
	lifecycle.PrefillEnd // when done is closed
	engine               *roster.Engine
	traced               trust.Trace
	path                 string // of its endpoint; "": the client's
	cancel               context.CancelFunc
	// alive ends when this leg has failed, unless its cache was used by then.
	alive    context.Context
	lose     context.CancelFunc
	done     chan struct{}
	panicked string // the panic that ended the leg, and where
}

// beside is what is known of a promised prefill leg now; nil is none.
func (p *prefillRun) beside() lifecycle.Beside {
	if p == nil {
		return lifecycle.Beside{}
	}
	select {
	case <-p.done:
		return lifecycle.Beside{Runs: true, Over: true, Ended: p.Began + p.Took, Took: p.Took}
	default:
		return lifecycle.Beside{Runs: true}
	}
}

// prefill sends a prefill leg, and waits for its end unless that is promised.
func (x *exchange) prefill(s lifecycle.Step) lifecycle.Step {
	e := x.g.roster.Get(s.Engine)
	if e == nil {
		return x.life.EngineGone(s)
	}
	transfer, home := x.life.NextTransfer(upstream.NewTransfer), e.Home.Load()
	decode := x.g.roster.Get(x.life.Decode())
	// Before this prompt is among those that wait there.
	if x.legs.Key == nil || home == nil || !x.life.MayPromise(known(e), known(decode), e.Waiting.Load()) {
		return x.life.PrefillEnded(x.await(x.beginPrefill(e, transfer, false)))
	}
	next := x.life.Promise(transfer, x.legs.Promise(transfer, home))
	x.promised = x.beginPrefill(e, transfer, true)
	return next
}

// beginPrefill sends a prefill leg, and waits for its end unless it is promised.
func (x *exchange) beginPrefill(e *roster.Engine, t kv.ID, promised bool) *prefillRun {
	run := newPrefill(e, t, x.trace.Leg())
	ctx, cancel := context.WithCancel(x.ctx)
	run.cancel = cancel
	run.alive, run.lose = context.WithCancel(x.ctx)
	body := x.legs.Prefill(t, run.traced, e.About.Load(), promised)
	computed := x.g.roster.Computes(e, x.life.Request)
	work := func() {
		defer close(run.done)
		defer computed()
		defer x.keepPanic(run)
		run.Params, run.Trouble = x.prefillLeg(ctx, run, body)
		run.Took = instant(time.Now()) - run.Began
		if run.Trouble != nil || run.Params == nil {
			x.promiseLost(run)
		}
	}
	if promised {
		go work()
	} else {
		work()
	}
	return run
}

// keepPanic keeps a panic for the request that the leg is of: it must end that one, and
// no other.
func (x *exchange) keepPanic(run *prefillRun) {
	if cause := recover(); cause != nil {
		run.panicked = fmt.Sprintf("%v\n%s", cause, debug.Stack())
		x.promiseLost(run)
	}
}

// promiseLost ends the decode leg that waits for a prefill leg, unless it has all it needs.
func (x *exchange) promiseLost(run *prefillRun) {
	x.promising.Lock()
	defer x.promising.Unlock()
	if x.life.PromiseLost() {
		run.lose()
	}
}

// await waits for a prefill leg, and returns how it ended.
func (x *exchange) await(run *prefillRun) lifecycle.PrefillEnd {
	<-run.done
	run.cancel()
	run.lose()
	if run.panicked != "" {
		panic(run.panicked)
	}
	return x.ended(run)
}

// ended is how a prefill leg ended, with what is known now.
func (x *exchange) ended(run *prefillRun) lifecycle.PrefillEnd {
	run.Engine, run.Client = known(run.engine), x.client()
	return run.PrefillEnd
}

// newPrefill is a prefill leg that begins now.
func newPrefill(e *roster.Engine, t kv.ID, traced trust.Trace) *prefillRun {
	run := &prefillRun{engine: e, traced: traced, done: make(chan struct{})}
	run.Transfer, run.Span, run.Began = t, upstream.SpanOf(run.traced), instant(time.Now())
	return run
}

// dropPromised ends a prefill leg for which no decode leg waits any more.
func (x *exchange) dropPromised(why string) {
	if run := x.promised; run != nil {
		x.promised = nil
		run.cancel()
		<-run.done
		run.Trouble.GiveUp(why)
		x.life.PrefillDropped(x.await(run))
		x.tell()
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

func (x *exchange) prefillLeg(ctx context.Context, run *prefillRun, body []byte) (json.RawMessage, *lifecycle.Trouble) {
	e := run.engine
	c, trouble := x.g.upstream.Send(ctx, upstream.Leg{
		Engine: e, Path: cmp.Or(run.path, x.life.Request.Endpoint), Body: body, Client: x.life.Request.Body, ID: run.Transfer.String(), Of: x.life.Record.ID, Trace: &x.trace, Traced: run.traced, Silent: x.g.options.PrefillTimeout,
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
		x.g.roster.LearnTokens(x.life.Request.Prefix, chunk.PromptTokens)
	}
	run.Report = openai.ParseReport(view.Get("meridian"))
	if json.Unmarshal(view.Get("usage"), &run.Usage) != nil {
		run.Usage = openai.Usage{} // it is not told
	}
	params := view.Get("kv_transfer_params")
	if len(params) == 0 || params[0] != '{' {
		return nil, nil // it has nothing to offer
	}
	return params, nil
}

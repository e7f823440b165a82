package gateway

import (
	"strings"
	"time"

	"meridian/internal/budget"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/moves"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// decode sends a decode leg and brings its answer to the client.
func (x *exchange) decode(s lifecycle.Step) lifecycle.Step {
	e := x.g.roster.Get(s.Engine)
	if e == nil {
		return x.life.EngineGone(s)
	}
	about := e.About.Load()
	x.promising.Lock()
	asked, before := x.life.AskDecode(s, known(e))
	x.promising.Unlock()
	if before != nil {
		return *before
	}
	x.tell()
	d := decodeLeg{Asked: asked, by: e, leg: upstream.DecodeLeg{
		Transfer: asked.Transfer, Traced: x.trace.Leg(), Params: asked.Params, Mode: asked.Mode, Tells: asked.Tells, Prompt: asked.Prompt, Sofar: asked.SoFar,
	}}
	if asked.Promised {
		d.promised = x.promised
	}
	if x.movable = nil; asked.MayLeave {
		x.mayLeave(&d, about)
	}
	began := time.Now()
	x.life.Asked(instant(began))
	trouble := x.decodeLeg(&d, about)
	end := lifecycle.DecodeEnd{Span: upstream.SpanOf(d.leg.Traced), Took: span(time.Since(began)), Trouble: trouble, Move: d.leg.Move}
	if x.movable != nil {
		end.Order = orderOf(x.movable)
	}
	if trouble == nil {
		x.joinPromised()
	}
	end.Engine, end.Client = known(e), x.client()
	x.promising.Lock()
	defer x.promising.Unlock()
	return x.life.DecodeEnded(end)
}

// decodeLeg is a decode leg that is to be sent.
type decodeLeg struct {
	lifecycle.Asked
	by  *roster.Engine
	leg upstream.DecodeLeg
	// promised is the prefill leg that is to fulfil what the leg was promised, nil for none.
	promised *prefillRun
}

// mayLeave lets a decode leg leave until its end.
func (x *exchange) mayLeave(d *decodeLeg, about *roster.About) {
	if about.Kind == openai.KindMeridian { // others know nothing of it
		d.leg.Move = upstream.NewTransfer()
	}
	x.movable = &moves.Leg{Engine: d.by, Kind: about.Kind, Transfer: d.leg.Move, Request: x.life.Request, ID: x.life.Record.ID, Avoid: d.Avoid, Began: time.Now(), Chosen: d.Chosen}
	x.movable.Answered.Store(int64(d.Tokens))
	x.movable.Phase.Store(uint32(d.Phase))
	x.g.moves.Add(x.movable)
}

// decodeLeg sends the leg, and returns when it has ended.
func (x *exchange) decodeLeg(d *decodeLeg, about *roster.About) *lifecycle.Trouble {
	path, body := x.life.Request.Endpoint, []byte(nil)
	if d.Mode == lifecycle.ResumeGreedy {
		var left bool
		if body, left = x.legs.Greedy(d.leg, about); !left {
			x.endGreedy()
			return nil
		}
		path = openai.PathCompletions
	} else {
		d.leg.ThoughtEnd = x.g.warmer.ThoughtEnd(x.life.Request, d.by)
		body = x.legs.Decode(d.leg, about)
	}
	d.by.Running.Add(1)
	defer d.by.Running.Add(-1)
	computed := func() {}
	if d.Params == nil {
		computed = x.g.roster.Computes(d.by, x.life.Request)
	}
	waiting := true
	arrived := func() bool {
		if waiting && x.arrived() {
			waiting = false
			computed()
		}
		return !waiting
	}
	defer func() {
		if waiting {
			computed()
		}
	}()
	silent := x.g.options.AnswerTimeout
	if x.life.Request.Stream {
		silent = x.g.options.FirstTokenTimeout
	}
	ctx := x.ctx
	if d.promised != nil {
		ctx, silent = d.promised.alive, silent+x.g.options.PrefillTimeout
	}
	c, trouble := x.g.upstream.Send(ctx, upstream.Leg{Engine: d.by, Path: path, Body: body, Client: x.life.Request.Body, ID: x.life.Record.ID, Trace: &x.trace, Traced: d.leg.Traced, Silent: silent})
	if trouble != nil {
		return trouble
	}
	defer c.Close()
	isStream := strings.HasPrefix(c.Response.Header.Get("Content-Type"), openai.EventStream)
	if x.life.Request.Stream && isStream {
		r := relay{x: x, call: c, greedy: d.Mode == lifecycle.ResumeGreedy, resumed: d.Resumed, arrived: arrived}
		return r.run()
	}
	return x.wholeAnswer(c, arrived)
}

// arrived: the first of the leg's answer is here. It is false where that comes too late.
func (x *exchange) arrived() bool {
	defer x.tell()
	x.promising.Lock()
	defer x.promising.Unlock()
	return x.life.Arrived(instant(time.Now()), x.promised.beside())
}

// endGreedy: the answer was complete but for its end.
func (x *exchange) endGreedy() {
	x.life.AtLimit()
	finish := openai.FinishLength
	end := openai.AppendEvent(nil, ownChunk(x.life, []openai.CompletionChoice{{FinishReason: &finish}}, nil))
	end = openai.AppendEvent(appendUsage(end, x.life), []byte(openai.Done))
	x.out.Events(end, x.life.Record)
}

// wholeAnswer passes on an answer that is no stream. Nothing of it has been
// sent before all of it is here, so that a loss can be mended.
func (x *exchange) wholeAnswer(c *upstream.Call, arrived func() bool) *lifecycle.Trouble {
	whole := budget.Held{Budget: &x.g.answers}
	defer whole.Release()
	if trouble := c.ReadWhole(&whole, x.g.options.MaxResponseBytes); trouble != nil {
		return trouble
	}
	if !arrived() {
		return c.TooLate()
	}
	var chunk openai.Chunk
	if !chunk.Parse(whole.Data) {
		return upstream.NotJSON(c.Engine)
	}
	if chunk.Moved {
		return leftUnasked(c.Engine)
	}
	if t := x.g.thoughtsOf(x.life.Request, c.Engine); t != nil {
		if data, changed := t.Rewrite(&chunk); changed {
			chunk.Parse(data)
		}
	}
	data, now := chunk.Raw(), instant(time.Now())
	x.recorder.Add(&chunk, false)
	if chunk.Report != nil {
		x.life.Reported(openai.ParseReport(chunk.Report), x.promised.beside())
	}
	x.life.HearWhole(&chunk, now)
	x.tell()
	if chunk.Report != nil || chunk.Transfers || chunk.ForcedEnd != "" {
		data = chunk.Without(false, forcedEdits(x.life.Record, &chunk)...)
	}
	x.out.Whole(data, x.life.Record, x.life.Latency(now))
	return nil
}

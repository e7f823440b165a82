package gateway

import (
	"slices"
	"strings"
	"time"

	"meridian/internal/budget"
	"meridian/internal/clip"
	"meridian/see/ledger"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// decoded is a decode leg from what was asked to how it ended.
type decoded struct {
	lifecycle.Step
	by  *roster.Engine
	leg upstream.DecodeLeg
	// promised is the prefill leg that is to fulfil what the leg was promised, nil for none.
	promised *prefillRun
	record   ledger.Leg
	took     time.Duration
	report   *openai.Report
	trouble  *lifecycle.Trouble
}

// decode sends a decode leg and brings its answer to the client.
func (x *exchange) decode(s lifecycle.Step) lifecycle.Step {
	e := x.g.roster.Get(s.Engine)
	if e == nil {
		return x.life.Route.DecodeFailed(lifecycle.Trouble{Kind: lifecycle.Lost, Engine: s.Engine, Fault: openai.Unavailable("the engine is gone")})
	}
	about := e.About.Load()
	d := decoded{Step: s, by: e}
	if instead := x.askDecode(&d, about); instead != nil {
		return *instead
	}
	leave := x.mayLeave(e, about, &d.leg)
	before := x.life.Answer.Tokens
	x.life.Asked = time.Now()
	d.report, d.trouble = x.decodeLeg(e, about, d.leg, d.promised)
	d.took = time.Since(x.life.Asked)
	leave()
	d.record.Tokens = x.life.Answer.Tokens - before
	return x.endDecode(&d)
}

// askDecode says what a decode leg asks for. It returns what to do instead, where the leg
// needs a ticket and there is none.
func (x *exchange) askDecode(d *decoded, about *roster.About) *lifecycle.Step {
	d.leg = upstream.DecodeLeg{Traced: x.trace.Leg(), Mode: d.Resume, Prompt: x.life.Answer.Prompt, Sofar: x.life.Answer.SoFar}
	d.record = ledger.Leg{Kind: ledger.DecodeLeg, Engine: about.ID, Span: upstream.SpanOf(d.leg.Traced)}
	if run := x.promised; run != nil && d.Ticket && d.by.Home.Load() == nil {
		x.promised = nil
		if next := x.endPrefill(run); !next.Ticket {
			return &next // it takes no promises, and there is no ticket
		}
	}
	if d.Ticket {
		d.leg.Transfer, d.leg.Params, d.promised = x.life.Ticket.Transfer, x.life.Ticket.Params, x.promised
		d.record.Transfer = x.life.Ticket.Transfer.String()
	} else if x.dropPromised(otherLegFailed); !x.life.Route.Ticket { // else it is kept until this engine has begun
		x.giveBack()
		x.life.Ticket.Drop()
	}
	switch {
	case d.Moved:
		d.record.Kind = ledger.MoveLeg
		x.movesTo(about)
	case d.Resume != lifecycle.ResumeNever:
		d.record.Kind = ledger.ResumeLeg
	}
	if !x.life.Route.Begun {
		mode, _ := x.life.Mode(about.Kind, about.MaxContext)
		x.life.Answer = lifecycle.Answer{Kind: about.Kind, Tells: mode != lifecycle.ResumeNever}
	}
	d.leg.Tells = x.life.Answer.Tells
	return nil
}

// endDecode takes in how a decode leg ended.
func (x *exchange) endDecode(d *decoded) lifecycle.Step {
	full := d.trouble != nil && d.trouble.Kind == lifecycle.Busy
	if full {
		x.g.roster.Refused(d.by, d.trouble.Fault.RetryAfter)
	}
	if d.Ticket && (d.trouble == nil || d.trouble.Reached && d.trouble.Kind != lifecycle.Refused) {
		x.life.Ticket.Use()
	}
	x.judge(d.by, &d.record, d.Ticket, d.report)
	switch {
	case full: // it is still on its way
	case d.Moved:
		x.landed(d.report)
	case d.Resume != lifecycle.ResumeNever:
		x.life.Record.Resumed++
	}
	if d.trouble != nil && d.promised.failed() && x.ctx.Err() == nil && !x.life.Route.Begun {
		x.promised = nil
		x.g.count.broken.Add(1)
		next := x.endPrefill(d.promised)
		d.trouble.GiveUp(otherLegFailed)
		x.note(d.record, x.life.Asked, d.took, d.trouble)
		return next
	}
	if d.trouble == nil {
		x.joinPromised()
	}
	x.note(d.record, x.life.Asked, d.took, d.trouble)
	if d.trouble != nil {
		return x.afterFailure(d)
	}
	d.by.Served.Add(1)
	x.life.Belief.Keep(d.by.Shares())
	if had, told := d.by.Spared(d.report, &x.life.Answer.Usage); !d.Ticket && d.Resume == lifecycle.ResumeNever {
		x.looked(d.by, d.report, had, told)
	}
	if d.Resume != lifecycle.ResumeNever && !d.Moved {
		x.g.count.resumed.Add(1)
	}
	if x.left != nil {
		return x.goElsewhere(d.by)
	}
	return x.life.Route.Finished()
}

// afterFailure is what to do after a decode leg that failed.
func (x *exchange) afterFailure(d *decoded) lifecycle.Step {
	x.g.roster.Hurry()
	next := x.life.DecodeFailed(*d.trouble, d.Ticket)
	if !x.life.Route.Ticket {
		x.dropPromised(otherLegFailed)
	}
	return next
}

func (x *exchange) decodeLeg(e *roster.Engine, about *roster.About, d upstream.DecodeLeg, promised *prefillRun) (*openai.Report, *lifecycle.Trouble) {
	path, body := x.life.Request.Endpoint, []byte(nil)
	if d.Mode == lifecycle.ResumeGreedy {
		var left bool
		if body, left = x.legs.Greedy(d, about); !left {
			return nil, x.endGreedy()
		}
		path = openai.PathCompletions
	} else {
		d.ThoughtEnd = x.g.warmer.ThoughtEnd(x.life.Request, e)
		body = x.legs.Decode(d, about)
	}
	e.Running.Add(1)
	computed := func() {}
	if d.Params == nil {
		computed = x.g.roster.Computes(e, x.life.Request)
	}
	waiting := true
	arrived := func() bool {
		if waiting {
			if !promised.use() {
				return false
			}
			waiting = false
			x.life.Passage.Land(time.Now())
			x.life.HasRoom()
			if d.Params != nil {
				x.life.Ticket.Use() // also where the client leaves in the middle
			}
			if d.Params == nil && x.life.Route.Ticket { // it went back to the engine whose ticket it is
				x.life.Route.Ticket = false
				x.giveBack()
				x.life.Ticket.Drop()
			}
			computed()
			x.g.roster.Note(e.Key, x.life.Request.Prefix, time.Now())
			x.notePromised()
		}
		return true
	}
	defer func() {
		e.Running.Add(-1)
		if waiting {
			computed()
		}
	}()
	silent := x.g.options.AnswerTimeout
	if x.life.Request.Stream {
		silent = x.g.options.FirstTokenTimeout
	}
	ctx := x.ctx
	if promised != nil {
		ctx, silent = promised.alive, silent+x.g.options.PrefillTimeout
	}
	c, trouble := x.g.upstream.Send(ctx, upstream.Leg{Engine: e, Path: path, Body: body, Client: x.life.Request.Body, ID: x.life.Record.ID, Trace: &x.trace, Traced: d.Traced, Silent: silent})
	if trouble != nil {
		return nil, trouble
	}
	defer c.Close()
	isStream := strings.HasPrefix(c.Response.Header.Get("Content-Type"), openai.EventStream)
	if x.life.Request.Stream && isStream {
		r := relay{x: x, call: c, greedy: d.Mode == lifecycle.ResumeGreedy, resumed: x.life.Route.Begun, arrived: arrived}
		if r.greedy {
			r.again = x.life.Answer.Beyond.Clone()
		}
		return r.run()
	}
	return x.wholeAnswer(c, arrived)
}

// endGreedy: the answer was complete but for its end.
func (x *exchange) endGreedy() *lifecycle.Trouble {
	x.life.Answer.Finish = openai.FinishLength
	finish := openai.FinishLength
	end := openai.AppendEvent(nil, x.ownChunk([]openai.CompletionChoice{{FinishReason: &finish}}, nil))
	end = openai.AppendEvent(x.appendUsage(end), []byte(openai.Done))
	x.out.Events(end, x.life.Record)
	return nil
}

// wholeAnswer passes on an answer that is no stream. Nothing of it has been
// sent before all of it is here, so that a loss can be mended.
func (x *exchange) wholeAnswer(c *upstream.Call, arrived func() bool) (*openai.Report, *lifecycle.Trouble) {
	whole := budget.Held{Budget: &x.g.answers}
	defer whole.Release()
	if trouble := c.ReadWhole(&whole, x.g.options.MaxResponseBytes); trouble != nil {
		return nil, trouble
	}
	data := whole.Data
	if !arrived() {
		return nil, c.TooLate()
	}
	var chunk openai.Chunk
	if !chunk.Parse(data) {
		return nil, upstream.NotJSON(c.Engine)
	}
	if chunk.Moved {
		return nil, leftUnasked(c.Engine)
	}
	data = x.splitWhole(c.Engine, &chunk)
	now := time.Now()
	x.life.Clock.Take(now, lifecycle.Sample{Answered: true, Visible: true})
	x.life.Answer.Note(&chunk)
	x.said.Add(&chunk, false)
	report := openai.ParseReport(chunk.Report)
	if report != nil {
		x.reported(report)
		x.noteForced(report)
	}
	x.noteStopped(&chunk)
	if chunk.Report != nil || chunk.Transfers || chunk.ForcedEnd != "" {
		data = chunk.Without(false, x.forcedEdits(&chunk)...)
	}
	if len(chunk.PromptTokens) > 0 {
		x.learn(chunk.PromptTokens)
	}
	x.out.Whole(data, x.life.Record, x.life.Clock.Latency(now))
	return report, nil
}

// Bounds of what an engine says of its answer.
const (
	maxReason = 255 // bytes of why a cache did not come
)

// noteFound takes in that a prefix of the prompt was found, and how long it is.
func noteFound(record *ledger.Leg, report *openai.Report) {
	if report != nil && report.KV == openai.KVFound {
		record.KV, record.KVTokens = report.KV, min(max(report.KVTokens, 0), openai.MaxUsage)
	}
}

// judge takes in where the prompt's cache came from.
func (x *exchange) judge(e *roster.Engine, record *ledger.Leg, ticket bool, report *openai.Report) {
	if report == nil {
		return
	}
	if i := slices.Index(kvSources, report.KV); i >= 0 {
		record.KV = report.KV
		x.g.count.kv[i].Add(1)
	}
	noteFound(record, report)
	record.KVReason = clip.Plain(report.KVReason, maxReason)
	if report.KV != openai.KVLocal {
		return
	}
	if ticket {
		x.g.count.fellBack.Add(1)
	}
	if x.life.Belief.IsCached() {
		x.g.roster.Misjudged(e.Key)
	}
}

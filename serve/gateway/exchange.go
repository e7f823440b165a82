package gateway

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"meridian/decide/placement"
	"meridian/internal/budget"
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/gateway/edge"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/moves"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/gateway/warm"
	"meridian/serve/openai"
)

// exchange is one request on its way through the gateway: the shell around its life.
type exchange struct {
	g    *Gateway
	ctx  context.Context
	out  *edge.Writer
	body budget.Held
	legs upstream.Legs
	life *lifecycle.Life
	// promising is held for the events that decide what becomes of a promised cache: the prefill
	// leg ends on a goroutine of its own.
	promising sync.Mutex

	trace    upstream.Trace
	promised *prefillRun          // the prefill leg that runs beside decode legs, which were promised its cache
	recorder *warm.AnswerRecorder // the answer, for the next turn; nil where that is not of interest
	movable  *moves.Leg           // the decode leg that runs, where it may leave
}

// run does what its life says until it is over.
func (x *exchange) run() {
	defer func() {
		x.dropPromised(lifecycle.OtherLegFailed)
		x.life.Over()
		x.tell()
		x.recorder.Release()
		slices.SortStableFunc(x.life.Record.Legs, func(a, b ledger.Leg) int { return cmp.Compare(a.StartMs, b.StartMs) })
	}()
	x.recorder = x.g.warmer.Gather(x.life.Request)
	next := x.life.Start()
	for {
		x.tell()
		// Who has the whole answer may go: that is no abandoning.
		if c := x.client(); c.Why != "" && next.Do != lifecycle.DoEnd {
			x.life.Cancel(c.Why, instant(time.Now()))
			return
		}
		switch next.Do {
		case lifecycle.DoPlace, lifecycle.DoPlaceDecode, lifecycle.DoPlacePrefix, lifecycle.DoMove:
			next = x.place(next)
		case lifecycle.DoOffer:
			next = x.offer(next.Engine)
		case lifecycle.DoPrefill:
			next = x.prefill(next)
		case lifecycle.DoEndPrefill:
			run := x.promised
			x.promised = nil
			next = x.life.PrefillEnded(x.await(run))
		case lifecycle.DoDecode:
			next = x.decode(next)
		case lifecycle.DoFail:
			x.fail(next.Fault)
			return
		case lifecycle.DoEnd:
			x.finish()
			return
		}
	}
}

// finish ends a request whose answer has.
func (x *exchange) finish() {
	broken := ""
	if x.out.Err != nil {
		broken = x.out.Err.Error()
	}
	x.life.Finish(broken, instant(time.Now()))
	x.tell()
	r := x.life.Record
	x.g.warmer.Answered(warm.Ended{Request: x.life.Request, Answer: x.recorder, Finished: r.Outcome == ledger.Finished, Finish: r.Finish, Thought: x.life.Thought()})
}

// fail tells the client, in whatever form is still possible.
func (x *exchange) fail(fault *openai.Error) {
	c := x.client()
	x.out.Fault(fault, x.life.Record)
	x.life.Fail(fault, c, instant(time.Now()))
	x.tell()
}

// client is whether the client waits for the answer still.
func (x *exchange) client() lifecycle.Client {
	c := lifecycle.Client{Gone: x.ctx.Err() != nil}
	switch {
	case x.out.Err != nil:
		c.Why = x.out.Err.Error()
	case x.g.life.Err() != nil:
		c.Why = "the gateway was stopped"
	case c.Gone:
		c.Why = "the client went away"
	}
	return c
}

// place shows its life the engines that there are until it has chosen.
func (x *exchange) place(s lifecycle.Step) lifecycle.Step {
	lost := x.g.roster.LastLoss()
	for {
		news, now := x.g.roster.News(), time.Now()
		next, wait := x.life.Place(s, lifecycle.Scene{Now: instant(now), Engines: x.g.roster.Candidates(x.life.Wants(), now), Lost: instant(lost)})
		if x.tell(); wait == nil || !x.waitFor(wait, news) {
			return next
		}
		s = next
	}
}

// waitFor is false where the request is over.
func (x *exchange) waitFor(w *lifecycle.Wait, news <-chan struct{}) bool {
	if w.Room {
		defer x.g.moves.Stand()()
	}
	patience := time.NewTimer(lasting(w.Most))
	defer patience.Stop()
	select {
	case <-news:
	case <-patience.C:
	case <-x.ctx.Done():
		return false
	}
	return true
}

// tell does what its life has it do beside its next step.
func (x *exchange) tell() {
	for _, effect := range x.life.Effects() {
		switch e := effect.(type) {
		case lifecycle.DropPrefill:
			x.dropPromised(lifecycle.OtherLegFailed)
		case lifecycle.GiveBack:
			x.g.giveBack(x.life, e)
		case lifecycle.Stays:
			if x.movable != nil {
				x.movable.End()
			}
		case lifecycle.ThoughtOver:
			x.movable.Phase.Store(uint32(placement.Answer))
			if e.Leave {
				x.g.moves.Ask(x.movable, lifecycle.ByThought)
			}
		case lifecycle.Learned:
			if x.legs.Learns {
				x.g.roster.LearnTokens(x.life.Request.Prefix, e.Prompt)
			}
		default:
			x.g.count.take(effect)
			x.g.learn(x.life, effect)
		}
	}
}

// learn has the roster know what a life has learned of engines.
func (g *Gateway) learn(l *lifecycle.Life, effect lifecycle.Effect) {
	of := func(key string, do func(*roster.Engine)) {
		if e := g.roster.Get(key); e != nil {
			do(e)
		}
	}
	now := time.Now()
	switch e := effect.(type) {
	case lifecycle.Served:
		of(e.Engine, func(e *roster.Engine) { e.Served.Add(1) })
	case lifecycle.Full:
		of(e.Engine, func(engine *roster.Engine) { g.roster.Refused(engine, e.Fault.RetryAfter) })
	case lifecycle.EngineLost:
		g.roster.Hurry()
	case lifecycle.HasPrompt:
		g.roster.Note(e.Engine, l.Request.Prefix, now)
	case lifecycle.Misjudged:
		g.roster.Misjudged(e.Engine)
	case lifecycle.Paced:
		of(e.Engine, func(engine *roster.Engine) { g.roster.Paced(engine, e.Report, e.Spared) })
	case lifecycle.FoundKept:
		of(e.Engine, func(engine *roster.Engine) {
			g.roster.FoundKept(engine, l.Request.Prefix, e.Spared, e.Tokens, now)
		})
	case lifecycle.MissedKept:
		g.roster.MissedKept(l.Request, e.Spared, e.Believed, now)
	case lifecycle.Kept:
		g.roster.NoteKept(l.Request.Prefix, now)
	}
}

// known is what a life is told of an engine; of none, nothing.
func known(e *roster.Engine) lifecycle.Engine {
	if e == nil {
		return lifecycle.Engine{}
	}
	about := e.About.Load()
	return lifecycle.Engine{
		Key: e.Key, Name: about.ID, Kind: about.Kind, MaxContext: about.MaxContext, Phases: e.Phases,
		Shares: e.Shares(), Unit: int(e.Unit.Load()), Home: e.Home.Load() != nil, Stray: e.Stray.Load(),
	}
}

// instant is a time as lives have it, which know no clock.
func instant(t time.Time) kv.Instant { return kv.Instant(roster.Instant(t) / int64(time.Microsecond)) }

// span is a time that something takes, as lives have it, and lasting one that they tell.
func span(d time.Duration) kv.Instant    { return kv.Instant(d.Microseconds()) }
func lasting(s kv.Instant) time.Duration { return time.Duration(s) * time.Microsecond }

package lifecycle

import (
	"slices"

	"meridian/decide/placement"
	"meridian/internal/clip"
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/openai"
)

// decodeLeg is the decode leg that runs, or the last, from what was asked to how it ended.
type decodeLeg struct {
	Step
	engine   Engine
	record   ledger.Leg
	asked    kv.Instant
	before   int  // tokens of the answer that were there
	resumed  bool // the client has the beginning from another engine
	given    bool // a ticket or a promise
	promised bool // the latter
	arrived  bool // the first of its answer is here
	mayLeave bool
	// again is what the engine says once more, because it goes on from an earlier point than the
	// client has come to.
	again  Overlap
	left   *left          // it has left
	report *openai.Report // nil while the engine has told nothing
	end    DecodeEnd
	waits  bool // to be put into the record, when the promised prefill leg is
}

// left is what a leg says at its end that has left.
type left struct {
	params []byte // what the engine that goes on is given; nil for nothing
}

// Asked is what a decode leg asks for.
type Asked struct {
	Transfer kv.ID
	Params   []byte // a ticket or a promise; nil for none
	Promised bool
	Mode     ResumeMode
	Resumed  bool // the client has the beginning from another engine
	// Tells: the engine is to tell which tokens it sends, so that another can go on.
	Tells         bool
	Prompt, SoFar []uint32
	Tokens        int // that the client has
	// MayLeave: another engine could go on exactly, but none of those to avoid. Chosen is how
	// often the request has left by choice.
	MayLeave bool
	Avoid    []string
	Chosen   int
	Phase    placement.Phases // of its next token
}

// EngineGone takes in that the engine of a leg is not there any more.
func (l *Life) EngineGone(s Step) Step {
	t := Trouble{Kind: Lost, Engine: s.Engine, Fault: openai.Unavailable("the engine is gone")}
	if s.Do == DoPrefill {
		return l.countFallBack(l.route.PrefillFailed(t))
	}
	return l.route.DecodeFailed(t)
}

// AskDecode says what a decode leg asks for, or what is to be done before.
func (l *Life) AskDecode(s Step, e Engine) (a Asked, before *Step) {
	if l.promise != noPromise && s.Ticket && !e.Home {
		return a, &Step{Do: DoEndPrefill} // it takes no promises: it is asked when the ticket is there
	}
	l.leg = decodeLeg{Step: s, engine: e, record: ledger.Leg{Kind: ledger.DecodeLeg, Engine: e.Name}, resumed: l.route.Begun}
	g := &l.leg
	if s.Ticket {
		g.given, g.promised = len(l.ticket.Params) > 0, l.promise != noPromise
		a.Transfer, a.Params, a.Promised = l.ticket.Transfer, l.ticket.Params, g.promised
		g.record.Transfer = a.Transfer.String()
	} else if l.effect(DropPrefill{}); !l.route.Ticket { // else it is kept until this engine has begun
		l.giveBack()
	}
	switch {
	case s.Moved:
		g.record.Kind = ledger.MoveLeg
		l.passage.Record.To = e.Name
	case s.Resume != ResumeNever:
		g.record.Kind = ledger.ResumeLeg
	}
	if s.Resume == ResumeGreedy {
		g.again = l.answer.Beyond.Clone()
	}
	mode := l.route.Resume
	if !l.route.Begun {
		mode, _ = l.mode(e)
		l.answer = Answer{Kind: e.Kind, Tells: mode != ResumeNever}
	}
	g.before = l.answer.Tokens
	g.mayLeave = mode != ResumeNever && l.answer.Tells && l.route.MayMove()
	a.Mode, a.Resumed, a.Tells, a.Prompt, a.SoFar, a.Tokens = s.Resume, l.route.Begun, l.answer.Tells, l.answer.Prompt, l.answer.SoFar, l.answer.Tokens
	a.MayLeave, a.Avoid, a.Chosen, a.Phase = g.mayLeave, slices.Clone(l.route.Avoid), l.chosen, l.phase()
	return a, nil
}

// Asked takes in that the decode leg is sent.
func (l *Life) Asked(now kv.Instant) { l.leg.asked = now }

// Arrived takes in that the first of a leg's answer is here. It is false where that comes too
// late: the promised prefill leg has failed, and this one is given up.
func (l *Life) Arrived(now kv.Instant, prefill Beside) bool {
	g := &l.leg
	switch {
	case g.arrived:
		return true
	case g.promised && !l.promise.use():
		return false
	}
	g.arrived = true
	l.passage.Land(now)
	l.roomUntil = 0
	if g.given {
		l.ticket.Use() // also where the client leaves in the middle
	} else if l.route.Ticket { // it went back to the engine whose ticket it is
		l.route.Ticket = false
		l.giveBack()
	}
	l.effect(HasPrompt{g.engine.Key})
	if prefill.Over {
		l.clock.Prefill = prefill.Took
	}
	return true
}

// AtLimit takes in that the answer was complete but for its end.
func (l *Life) AtLimit() { l.answer.Finish = openai.FinishLength }

// Order is why a leg was asked to leave, and for where.
type Order struct {
	Given     bool
	Why       MoveReason
	To        string // key
	Placement placement.Reason
}

// DecodeEnd is how a decode leg ended.
type DecodeEnd struct {
	Engine  Engine // as it is known now
	Span    string
	Took    kv.Instant
	Trouble *Trouble
	Order   Order
	Move    kv.ID // under which it may have left
	Client  Client
}

// DecodeEnded takes in how a decode leg ended.
func (l *Life) DecodeEnded(d DecodeEnd) Step {
	g, t := &l.leg, d.Trouble
	g.end = d
	g.record.Span, g.record.Tokens = d.Span, l.answer.Tokens-g.before
	full := t != nil && t.Kind == Busy
	if full {
		l.effect(Full{g.engine.Key, t.Fault})
	}
	if g.Ticket && (t == nil || t.Reached && t.Kind != Refused) {
		l.ticket.Use()
	}
	if d.Order.Given && g.left == nil {
		l.effect(MoveEnded{d.Order.Why, MoveStayed})
	}
	l.judge()
	switch {
	case full: // it is still on its way
	case g.Moved:
		l.landed(g.report, d.Client)
	case g.Resume != ResumeNever:
		l.Record.Resumed++
	}
	if t != nil && g.promised && l.promise == forfeit && !d.Client.Gone && !l.route.Begun {
		l.effect(CountBroken)
		g.waits = true
		return Step{Do: DoEndPrefill}
	}
	l.noteDecode()
	if t != nil {
		return l.decodeFailed()
	}
	l.effect(Served{g.engine.Key})
	l.belief.Keep(d.Engine.Shares)
	l.spared(d.Engine, g.report, &l.answer.Usage, g.Ticket || g.Resume != ResumeNever)
	if g.Resume != ResumeNever && !g.Moved {
		l.effect(CountResumed)
	}
	if g.left != nil {
		return l.goElsewhere()
	}
	return l.route.Finished()
}

func (l *Life) noteDecode() {
	g := &l.leg
	l.noteLeg(g.record, g.asked, g.end.Took, g.end.Trouble, g.end.Client)
}

// decodeFailed is what to do after a decode leg that failed.
func (l *Life) decodeFailed() Step {
	l.effect(EngineLost{})
	next := l.route.DecodeFailed(*l.leg.end.Trouble)
	if l.leg.Ticket {
		l.countFallBack(next)
	}
	if !l.route.Ticket {
		l.effect(DropPrefill{})
	}
	return next
}

// giveBack has the ticket or promise given back that is held and that no engine can have used,
// and holds it no more.
func (l *Life) giveBack() {
	if l.ticket.IsUnused() {
		g := GiveBack{Transfer: l.ticket.Transfer, Params: l.ticket.Params, Avoid: slices.Clone(l.route.Avoid)}
		if l.route.Decode != l.route.Offers {
			g.Last = l.route.Decode
		}
		l.effect(g)
	}
	l.ticket.Drop()
}

// KVSources are where a prompt's cache may come from, as engines tell.
var KVSources = []string{"handoff", "cached", openai.KVLocal, openai.KVFound}

// MaxReason is how many bytes are kept of why a cache did not come.
const MaxReason = 255

// judge takes in where the prompt's cache came from.
func (l *Life) judge() {
	g := &l.leg
	if g.report == nil {
		return
	}
	if i := slices.Index(KVSources, g.report.KV); i >= 0 {
		g.record.KV = g.report.KV
		l.effect(KVCame{i})
	}
	noteFound(&g.record, g.report)
	g.record.KVReason = clip.Plain(g.report.KVReason, MaxReason)
	if g.report.KV != openai.KVLocal {
		return
	}
	if g.Ticket {
		l.effect(CountFellBack)
	}
	if l.belief.IsCached() {
		l.effect(Misjudged{g.engine.Key})
	}
}

// noteFound takes in that a prefix of the prompt was found, and how long it is.
func noteFound(record *ledger.Leg, report *openai.Report) {
	if report != nil && report.KV == openai.KVFound {
		record.KV, record.KVTokens = report.KV, min(max(report.KVTokens, 0), openai.MaxUsage)
	}
}

package lifecycle

import (
	"slices"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/see/ledger"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Life is all that is known of one request on its way. Each event says what to do next, or
// answers what the gateway must know to go on; what else follows from it are Effects.
type Life struct {
	Request *request.Request // nil while it is read
	Record  *ledger.Record

	rules   Rules
	route   Route
	clock   Stopwatch
	ticket  Ticket
	promise promise
	belief  Belief
	answer  Answer
	leg     decodeLeg
	passage *Passage // of the move that is on its way, or the last

	effects     []Effect
	engineUntil kv.Instant // until when it waits for an engine to come; zero while one is there
	waited      bool       // for an engine to come, in vain
	roomUntil   kv.Instant // until when a stream that has begun waits for an engine that has room; zero while one has it
	chosen      int        // moves by choice
	thoughtOver bool       // its thought has ended
}

// Options of a life.
type Options struct {
	ID     kv.ID // of the request, and of its first hand-off
	Record *ledger.Record
	Began  kv.Instant
	Rules  Rules
}

// New is the life of a request that has come and is to be read.
func New(o Options) *Life {
	return &Life{Record: o.Record, rules: o.Rules, clock: Stopwatch{Began: o.Began}, ticket: Ticket{Request: o.ID}}
}

const (
	// maxChosenMoves is how often a request leaves by choice, chosenRest how long it stays
	// before it does again, and leastLeft how many tokens it must have left.
	maxChosenMoves = 2
	chosenRest     = 2 * kv.Second
	leastLeft      = 16
)

// Admitted takes in that it is the request's turn.
func (l *Life) Admitted(now kv.Instant) { l.clock.Admitted = now }

// Start is the first step.
func (l *Life) Start() Step { return l.route.Start() }

// phase is what the request's next token is of, as far as is known.
func (l *Life) phase() placement.Phases {
	switch {
	case !l.route.Begun || !l.Request.IsChat():
		return l.Request.Phase
	case l.answer.Thought > 0 && !l.thoughtOver:
		return placement.Think
	}
	return placement.Answer
}

// mode is how a stream of this request could go on elsewhere when an engine is lost, or why it
// cannot.
func (l *Life) mode(e Engine) (ResumeMode, string) {
	if l.rules.NoResume {
		return ResumeNever, "going on with another engine is turned off"
	}
	return Resumable(l.Request, e.Kind, e.MaxContext)
}

// maySpare tells whether a prefill engine may generate for this request where decode engines
// are full: one that could not leave it again would keep it from prompts to its end.
func (l *Life) maySpare() bool {
	mode, _ := l.mode(Engine{Kind: openai.KindMeridian})
	return mode == ResumeExact && l.route.MayMove()
}

// IsComplete: the client has the ends of all answers.
func (l *Life) IsComplete() bool { return l.answer.Ends >= l.Request.Answers }

// mayChoose tells whether the request may leave an engine that it need not leave: not often, not
// soon again, and not when it is about to end.
func (l *Life) mayChoose(now kv.Instant) bool {
	left := leastLeft
	if limit := l.Request.MaxTokens; limit != nil {
		left = *limit - l.answer.Tokens
	}
	return l.chosen < maxChosenMoves && left >= leastLeft && (l.passage == nil || now-l.passage.Last >= chosenRest)
}

// leave begins a move from an engine.
func (l *Life) leave(why MoveReason, from Engine, to string) {
	if !why.Leaves() {
		l.chosen++
	}
	l.passage = &Passage{Why: why, From: from.Key, To: to, Last: l.clock.Last, Record: ledger.Move{
		From: from.Name, Why: MoveReasons[why], Tokens: l.answer.Tokens, AtMs: l.clock.Since(l.clock.Last),
	}}
}

// goElsewhere goes on after the leg has left.
func (l *Life) goElsewhere() Step {
	g := &l.leg
	order := g.end.Order
	if !order.Given { // it left of its own accord
		order.Why = ByDrain
	}
	l.leave(order.Why, g.engine, order.To)
	if order.Placement != (placement.Reason{}) {
		l.passage.Record.Placement = order.Placement.String()
	}
	l.giveBack() // of before, if no engine came for it
	l.ticket.Hold(g.end.Move, g.left.params)
	l.passage.Offered = g.left.params != nil
	return l.route.Moved(g.engine.Key, l.passage.Offered)
}

// landed puts a move into the record, when the leg that it came to has ended.
func (l *Life) landed(report *openai.Report, c Client) {
	p := l.passage
	end, ok := p.End(report, c.Why != "")
	if !ok {
		return
	}
	if report != nil && slices.Contains(KVSources, report.KV) {
		p.Record.KV = report.KV
	}
	l.Record.Moves = append(l.Record.Moves, p.Record)
	l.effect(MoveEnded{p.Why, end})
}

// Fail takes in what the client was told in the place of an answer.
func (l *Life) Fail(fault *openai.Error, c Client, now kv.Instant) {
	outcome := ledger.Failed
	if fault.Status < openai.StatusInternalServerError {
		outcome = ledger.Refused
	}
	if l.route.Begun {
		l.effect(CountUnresumable)
	}
	if !l.passage.IsOver() {
		l.landed(nil, c)
	}
	l.Record.Status = fault.Status
	l.end(outcome, fault.Recorded(), now)
}

// Finish takes in that the answer has ended; broken is why the client did not get all of it.
func (l *Life) Finish(broken string, now kv.Instant) {
	if broken != "" {
		l.Cancel(broken, now)
		return
	}
	if l.belief.IsKept() {
		l.effect(Kept{})
	}
	l.end(ledger.Finished, "", now)
}

// Cancel takes in that the client does not wait any more, and why.
func (l *Life) Cancel(why string, now kv.Instant) { l.end(ledger.Cancelled, why, now) }

// end completes the record.
func (l *Life) end(outcome, problem string, now kv.Instant) {
	r := l.Record
	r.Outcome, r.Problem = outcome, problem
	if r.Status == 0 && outcome == ledger.Finished {
		r.Status = openai.StatusOK
	}
	r.PromptTokens, r.OutputTokens, r.Finish = l.answer.Usage.PromptTokens, l.answer.Usage.CompletionTokens, l.answer.Finish
	if r.OutputTokens == 0 {
		r.OutputTokens = l.answer.Tokens
	}
	if r.PromptTokens == 0 {
		r.PromptTokens = len(l.answer.Prompt)
	}
	r.ThinkTokens = min(l.answer.Thought, r.OutputTokens)
	if d := l.answer.Usage.OutputDetails; d != nil {
		r.ThinkTokens = d.ReasoningTokens
	}
	r.Latency = l.Latency(now)
}

// Over is the last event: what no engine has used is given back.
func (l *Life) Over() { l.giveBack() }

// Latency is what the times come to by now.
func (l *Life) Latency(now kv.Instant) ledger.Latency { return l.clock.Latency(now) }

// Thought is how many tokens came as a thought.
func (l *Life) Thought() int { return l.answer.Thought }

package lifecycle

import (
	"net/http"
	"time"

	"meridian/decide/placement"
	"meridian/see/ledger"
	"meridian/serve/gateway/request"
	"meridian/serve/openai"
)

// Life is all that is known of one request on its way.
type Life struct {
	Request *request.Request // nil while it is read
	Record  *ledger.Record
	Route   Route
	Clock   Stopwatch
	Ticket  Ticket
	Belief  Belief
	Answer  Answer
	Passage *Passage // of the move that is on its way, or the last
	// Asked is when the last decode leg began.
	Asked time.Time
	Rules Rules

	effects     []Effect
	engineUntil time.Time // until when it waits for an engine to come; zero while one is there
	waited      bool      // for an engine to come, in vain
	roomUntil   time.Time // until when a stream that has begun waits for an engine that has room; zero while one has it
	chosen      int       // moves by choice
	thoughtOver bool      // its thought has ended
}

const (
	// maxChosenMoves is how often a request leaves by choice, chosenRest how long it stays
	// before it does again, and leastLeft how many tokens it must have left.
	maxChosenMoves = 2
	chosenRest     = 2 * time.Second
	leastLeft      = 16
)

// Phase is what the request's next token is of, as far as is known.
func (l *Life) Phase() placement.Phases {
	switch {
	case !l.Route.Begun || !l.Request.IsChat():
		return l.Request.Phase
	case l.Answer.Thought > 0 && !l.thoughtOver:
		return placement.Think
	}
	return placement.Answer
}

// Mode is how a stream of this request could go on elsewhere when an engine is lost, or why it
// cannot.
func (l *Life) Mode(kind openai.EngineKind, maxContext int) (ResumeMode, string) {
	if l.Rules.NoResume {
		return ResumeNever, "going on with another engine is turned off"
	}
	return Resumable(l.Request, kind, maxContext)
}

// MayLeave tells whether a leg at an engine may leave it, as another could go on exactly.
func (l *Life) MayLeave(kind openai.EngineKind, maxContext int) bool {
	mode := l.Route.Resume
	if !l.Route.Begun {
		mode, _ = l.Mode(kind, maxContext)
	}
	return mode != ResumeNever && l.Answer.Tells && l.Route.MayMove()
}

// MaySpare tells whether a prefill engine may generate for this request where decode engines
// are full: one that could not leave it again would keep it from prompts to its end.
func (l *Life) MaySpare() bool {
	mode, _ := l.Mode(openai.KindMeridian, 0)
	return mode == ResumeExact && l.Route.MayMove()
}

// EndThought takes in the first of the answer after a thought, and is false where it was here
// before.
func (l *Life) EndThought() bool {
	was := l.thoughtOver
	l.thoughtOver = true
	return !was
}

// IsComplete: the client has the ends of all answers.
func (l *Life) IsComplete() bool { return l.Answer.Ends >= l.Request.Answers }

// MayChoose tells whether the request may leave an engine that it need not leave: not often, not
// soon again, and not when it is about to end.
func (l *Life) MayChoose(now time.Time) bool {
	left := leastLeft
	if limit := l.Request.MaxTokens; limit != nil {
		left = *limit - l.Answer.Tokens
	}
	return l.chosen < maxChosenMoves && left >= leastLeft && (l.Passage == nil || now.Sub(l.Passage.Last) >= chosenRest)
}

// Chosen is how often it has left by choice.
func (l *Life) Chosen() int { return l.chosen }

// Leave begins a move. from is the engine's key, and name what people call it.
func (l *Life) Leave(why MoveReason, from, name, to string) {
	if !why.Leaves() {
		l.chosen++
	}
	l.Passage = &Passage{Why: why, From: from, To: to, Last: l.Clock.Last, Record: ledger.Move{
		From: name, Why: MoveReasons[why], Tokens: l.Answer.Tokens, AtMs: l.Clock.Since(l.Clock.Last),
	}}
}

// HasRoom: an engine has begun with it.
func (l *Life) HasRoom() { l.roomUntil = time.Time{} }

// End completes the record.
func (l *Life) End(outcome, problem string, now time.Time) {
	r := l.Record
	r.Outcome, r.Problem = outcome, problem
	if r.Status == 0 && outcome == ledger.Finished {
		r.Status = http.StatusOK
	}
	r.PromptTokens, r.OutputTokens, r.Finish = l.Answer.Usage.PromptTokens, l.Answer.Usage.CompletionTokens, l.Answer.Finish
	if r.OutputTokens == 0 {
		r.OutputTokens = l.Answer.Tokens
	}
	if r.PromptTokens == 0 {
		r.PromptTokens = len(l.Answer.Prompt)
	}
	r.ThinkTokens = min(l.Answer.Thought, r.OutputTokens)
	if d := l.Answer.Usage.OutputDetails; d != nil {
		r.ThinkTokens = d.ReasoningTokens
	}
	r.Latency = l.Clock.Latency(now)
}

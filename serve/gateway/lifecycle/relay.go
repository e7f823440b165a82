package lifecycle

import (
	"encoding/json"
	"slices"

	"meridian/decide/placement"
	"meridian/kv"
	"meridian/serve/gateway/thought"
	"meridian/serve/openai"
)

// maxResumed is how many tokens of an answer are kept for another engine to go on after.
const maxResumed = 1 << 20

// Took notes when a chunk came, and returns the time between tokens that it ends, with how many
// tokens it is for.
func (l *Life) Took(now kv.Instant, s Sample) (gap kv.Instant, tokens int, think bool) {
	return l.clock.Take(now, s)
}

// Leaves takes in the chunk by which an engine ends a leg that was to leave, and what follows it,
// and is true for those: they are no client's.
func (l *Life) Leaves(c *openai.Chunk) bool {
	g := &l.leg
	if g.left != nil {
		if report := openai.ParseReport(c.Report); report != nil { // it comes with the usage
			g.report = report
		}
		return true
	}
	if !g.mayLeave || !c.Moved {
		return false
	}
	g.left = &left{}
	g.report = openai.ParseReport(c.Report)
	var told openai.KVTransfer
	params := c.Get("kv_transfer_params")
	all := len(l.answer.Prompt) + len(l.Request.Resumed) + len(l.answer.SoFar)
	// A ticket for anything else than all but the last token would be refused.
	if len(params) > 0 && params[0] == '{' && json.Unmarshal(params, &told) == nil && told.Tokens == all-1 {
		g.left.params = slices.Clone(params)
	}
	return true
}

// HangUp takes in that a leg was asked to leave whose engine cannot end it. It is true where the
// client has all that came and another engine could go on right there: then the leg has left.
func (l *Life) HangUp() bool {
	g, a := &l.leg, &l.answer
	switch {
	case !g.mayLeave || l.route.Resume != ResumeGreedy || l.route.Thinks || l.IsComplete():
		return false
	case len(a.SoFar) == 0 || !a.Beyond.IsEmpty() || !g.again.IsEmpty():
		return false // what the engine has computed would be computed twice
	}
	g.left = &left{}
	return true
}

// HasLeft: the leg that runs has left its engine.
func (l *Life) HasLeft() bool { return l.leg.left != nil }

// Reported takes in what a decode engine tells of its leg. Of a hand-off that was promised, only
// what it took beyond the prefill engine's answer is its time.
func (l *Life) Reported(r *openai.Report, prefill Beside) {
	g := &l.leg
	if r == nil {
		return
	}
	if g.report = r; openai.IsForcedEnd(r.ForcedThinkEnd) {
		l.Record.ForcedThinkEnd = r.ForcedThinkEnd
	}
	if g.resumed {
		return // what is computed again is no part of the way to the first token
	}
	l.clock.Report(r)
	if prefill.Runs && r.HandoffMs > 0 {
		l.clock.Handoff = prefill.until(g.asked + told(r.QueueMs) + told(r.HandoffMs))
	}
}

// Hear takes from a chunk what only the gateway needs.
func (l *Life) Hear(c *openai.Chunk) {
	a := &l.answer
	if len(c.PromptTokens) > 0 && len(a.Prompt) == 0 {
		a.Prompt = append(a.Prompt, c.PromptTokens...)
		l.effect(Learned{a.Prompt})
	}
	if a.ID == nil {
		a.ID, a.Created = append(a.ID, c.Get("id")...), append(a.Created, c.Get("created")...)
	}
	l.noteStopped(c)
	a.Note(c)
}

// HearWhole takes in an answer that is no stream.
func (l *Life) HearWhole(c *openai.Chunk, now kv.Instant) {
	l.clock.Take(now, Sample{Answered: true, Visible: true})
	l.answer.Note(c)
	l.noteStopped(c)
	if len(c.PromptTokens) > 0 {
		l.effect(Learned{slices.Clone(c.PromptTokens)})
	}
}

// noteStopped takes in that vLLM has ended a thought, as its last chunk of an answer says. Where the gateway did not
// ask for it, a client may have written it, as a text to stop at.
func (l *Life) noteStopped(c *openai.Chunk) {
	if l.Request.TellLimit == thought.LimitXArgs && c.ForcedEnd != "" && l.Record.ForcedThinkEnd == "" {
		l.Record.ForcedThinkEnd = c.ForcedEnd
	}
}

// Repeated takes from a chunk what the client does not have yet, of an engine that goes on from
// an earlier point; ok is false where it goes on with something else.
func (l *Life) Repeated(c *openai.Chunk) (text string, ok bool) {
	tokens, text, ok := l.leg.again.Repeat(c.Tokens, textIn(c))
	if !ok {
		l.cannotResume("another engine's answer is not the same")
		return "", false
	}
	c.Tokens, c.Answered = tokens, text != ""
	return text, true
}

func textIn(c *openai.Chunk) string {
	var text string
	if c.Text != nil {
		_ = json.Unmarshal(c.Text, &text) // what is no text says nothing
	}
	return text
}

// Begun: the client has something of the answer.
func (l *Life) Begun() bool { return l.route.Begun }

// Begin takes in the first chunk of an answer that the client gets: how it goes on elsewhere, or
// why it cannot. e is the engine as it is known now.
func (l *Life) Begin(e Engine, c *openai.Chunk) {
	if l.route.Begun {
		return
	}
	mode, why := l.mode(e)
	switch {
	case mode == ResumeNever:
	case !c.HasTokens:
		mode, why = ResumeNever, "the engine does not tell which tokens it sent"
	case mode == ResumeGreedy && len(l.answer.Prompt) == 0:
		mode, why = ResumeNever, "the engine does not tell the prompt's tokens"
	}
	if l.route.Began(mode, why); mode == ResumeNever {
		l.effect(Stays{})
	}
}

// Piece is what a chunk adds to the answer that the client has.
type Piece struct {
	Chunk *openai.Chunk
	Ends  int     // answers that end for the client
	Whole bool    // one token, with its text
	Held  bool    // some of its text is held back
	Text  *string // without what the client had before; nil: all of the chunk's
}

// Settle counts the tokens that the client has now, and returns how many they are. An engine that
// goes on exactly knows itself what it held back; for others the answer so far ends where a
// token's text is known to be complete, and the rest is said again.
func (l *Life) Settle(p Piece, now kv.Instant) int {
	a, c := &l.answer, p.Chunk
	a.Ends += p.Ends
	tokens := len(c.Tokens)
	if !c.HasTokens && (c.Answered || c.Thought) {
		tokens = max(tokens, 1)
	}
	a.Tokens += tokens
	if c.Thought {
		a.Thought += tokens
		if c.Answered && tokens > 0 {
			a.Thought-- // where a thought ends within a chunk, no engine tells where
		}
	}
	if c.Answered && a.Thought > 0 {
		l.endThought(now)
	}
	if l.route.Resume != ResumeNever {
		l.keep(p)
	}
	return a.Tokens
}

// endThought takes in that the first of the answer after a thought is here: another engine may
// be meant for that, or have less to do.
func (l *Life) endThought(now kv.Instant) {
	if l.thoughtOver {
		return
	}
	if l.thoughtOver = true; l.leg.mayLeave {
		goes := l.rules.MoveAtThinkEnd || !l.leg.engine.Phases.Suits(placement.Answer)
		l.effect(ThoughtOver{Leave: goes && l.mayChoose(now)})
	}
}

// keep keeps what another engine would go on after.
func (l *Life) keep(p Piece) {
	a, c := &l.answer, p.Chunk
	switch {
	case (c.Answered || c.Thought) && !c.HasTokens:
		l.cannotResume("the engine did not tell which tokens it sent")
	case len(a.SoFar)+len(a.Beyond.Tokens) > maxResumed:
		a.SoFar, a.Beyond = nil, Overlap{}
		l.cannotResume("the answer is longer than any that goes on elsewhere")
	case l.route.Resume == ResumeExact:
		a.SoFar = append(a.SoFar, c.Tokens...)
	default:
		a.Beyond.Tokens = append(a.Beyond.Tokens, c.Tokens...)
		switch {
		case c.Thought || p.Held:
			l.route.Thinks = true
		case !c.Answered:
		case p.Whole && l.leg.again.IsEmpty():
			l.route.Thinks = false
			a.SoFar = append(a.SoFar, a.Beyond.Tokens...)
			a.Beyond = Overlap{}
		case p.Text != nil:
			a.Beyond.Text = append(a.Beyond.Text, *p.Text...)
		default:
			a.Beyond.Text = append(a.Beyond.Text, textIn(c)...)
		}
	}
}

// cannotResume: another engine could not go on from here any more.
func (l *Life) cannotResume(why string) {
	l.route.CannotResume(why)
	l.effect(Stays{})
}

// HidesIDs: the client did not ask for the token ids that the engine tells.
func (l *Life) HidesIDs() bool { return l.answer.Tells && !l.Request.WantsIDs }

// Head is what the chunks of the first engine have in common: the raw values of id and created.
func (l *Life) Head() (id, created json.RawMessage) { return l.answer.ID, l.answer.Created }

// TakeUsage takes in what an engine counts that goes on after tokens it got as prompt, and
// returns what the client is told.
func (l *Life) TakeUsage(u openai.Usage) *openai.Usage {
	prompt := len(l.answer.Prompt)
	before := max(0, u.PromptTokens-prompt) // tokens of the answer that were sent as prompt
	u = openai.Usage{PromptTokens: prompt, CompletionTokens: min(u.CompletionTokens+before, openai.MaxUsage), TotalTokens: u.TotalTokens}
	u.OutputDetails = l.answer.outputDetails(u.CompletionTokens)
	l.answer.Usage = u
	return &u
}

// OwedUsage is the usage that the client wants and that an engine which was lost owes, nil where
// none is, or where it is not known. It is owed once.
func (l *Life) OwedUsage() *openai.Usage {
	a := &l.answer
	if !l.Request.WantsUsage || a.Told || len(a.Prompt) == 0 {
		return nil
	}
	a.Told = true
	a.Usage = openai.Usage{PromptTokens: len(a.Prompt), CompletionTokens: a.Tokens, TotalTokens: len(a.Prompt) + a.Tokens, OutputDetails: a.outputDetails(a.Tokens)}
	return &a.Usage
}

package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/thought"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// relay brings the events of one decode leg to the client, and learns what it
// needs to go on elsewhere. An event is passed on whole or not at all.
type relay struct {
	x       *exchange
	call    *upstream.Call
	greedy  bool        // the leg is a completion whose prompt ends with the answer so far
	resumed bool        // the client has the beginning from another engine
	arrived func() bool // false: too late
	// again is what another engine says once more, because it goes on from an
	// earlier point than the client has come to.
	again lifecycle.Overlap

	thoughts *thought.Split // nil where the engine's chunks go as they come

	chunk  openai.Chunk
	whole  bool   // the chunk is one token, with its text
	text   string // of a greedy leg's chunk, without what the client has
	held   []byte // events that say nothing yet, before the first that does
	ready  []byte // events to be written
	report *openai.Report
}

// flushBytes is how much is gathered at most before it is written.
const flushBytes = 32 << 10

// run returns when the answer is complete, or why it is not.
func (r *relay) run() (*openai.Report, *lifecycle.Trouble) {
	if !r.greedy {
		r.thoughts = r.x.thoughtsOf(r.call.Engine)
	}
	events := openai.NewEventReader(r.call.Response.Body, openai.MaxEvent)
	for {
		data, err := events.Next()
		if err != nil {
			return r.report, r.broken(err)
		}
		r.call.Alive(r.x.g.options.StallTimeout)
		if string(data) == openai.Done {
			if r.x.left == nil {
				r.finish()
			}
			r.flush()
			return r.report, nil
		}
		if t := r.take(data); t != nil {
			return r.report, r.brokenOff(t)
		}
		if !events.Ready() || len(r.ready) > flushBytes {
			r.flush()
		}
		if r.hangsUp() {
			r.flush()
			return r.report, nil
		}
		if r.x.out.Err != nil || r.x.ctx.Err() != nil {
			return r.report, r.clientGone()
		}
	}
}

// broken says what the end of the connection means.
func (r *relay) broken(err error) *lifecycle.Trouble {
	if r.x.left != nil { // it has said all that it had to
		r.flush()
		return nil
	}
	if r.complete() && errors.Is(err, io.EOF) {
		r.end() // some engines say no [DONE], and are well
		return nil
	}
	return r.brokenOff(r.call.Trouble(err))
}

// complete: the client has the ends of all answers.
func (r *relay) complete() bool { return r.x.life.IsComplete() }

// brokenOff: an engine that is lost after the end of the answer has lost nothing
// but how many tokens there were, and another one would only end it again.
func (r *relay) brokenOff(t *lifecycle.Trouble) *lifecycle.Trouble {
	if !r.complete() || t.Withdrawn {
		r.flush()
		return t
	}
	r.end()
	return nil
}

// end ends a stream for an engine that did not.
func (r *relay) end() {
	r.ready = r.x.appendUsage(append(r.ready, r.held...))
	r.held = nil
	r.finish()
}

func (r *relay) clientGone() *lifecycle.Trouble {
	return &lifecycle.Trouble{Kind: lifecycle.Refused, Engine: r.call.Engine.Key, Fault: openai.Unavailable("the client went away")}
}

func (r *relay) finish() {
	r.ready = append(r.ready, r.held...)
	r.release()
	r.ready = openai.AppendEvent(r.ready, []byte(openai.Done))
	r.flush()
}

func (r *relay) flush() {
	if len(r.ready) > 0 {
		r.call.Pause() // from here on it is the client's time
		r.x.out.Events(r.ready, r.x.life.Record)
		r.ready = r.ready[:0]
		r.call.Alive(r.x.g.options.StallTimeout)
	}
}

// take looks at one event and makes ready what the client gets of it.
func (r *relay) take(data []byte) *lifecycle.Trouble {
	x := r.x
	if !r.chunk.Parse(data) {
		r.ready = openai.AppendEvent(r.ready, data)
		return nil
	}
	c := &r.chunk
	if c.Fault != nil {
		return r.engineFault()
	}
	if r.leaves() {
		return nil
	}
	if c.Moved {
		return leftUnasked(r.call.Engine)
	}
	if r.split() {
		return nil
	}
	r.learn()
	r.whole = c.Answered && len(c.Tokens) == 1
	if c.Says() && !r.arrived() {
		return r.call.TooLate()
	}
	if r.greedy {
		if t := r.cut(); t != nil {
			return t
		}
		if !c.Says() {
			return nil // the client has it
		}
	}
	r.timed(lifecycle.Sample{Thought: c.Thought, Answered: c.Answered, Visible: c.Visible, Tokens: len(c.Tokens)})
	switch {
	case !c.Says() && c.Choices == 0 && c.Report != nil: // only for us
	case !c.Says() && r.resumed: // the beginning of a stream that has begun
	case !c.Says() && !x.life.Route.Begun:
		if len(r.held) > maxHeld {
			return r.saysNothing()
		}
		r.held = openai.AppendEvent(r.held, r.shown())
	default:
		if !x.life.Route.Begun {
			if x.life.Route.Began(r.mode()); x.life.Route.Resume == lifecycle.ResumeNever {
				x.stays()
			}
			r.ready = append(r.ready, r.held...)
			r.held = nil
		}
		if !r.onlyOurs() {
			r.ready = openai.AppendEvent(r.ready, r.shown())
			x.said.Add(c, r.greedy)
			x.life.Answer.Ends += c.Ends
		}
		r.settle()
	}
	return nil
}

// timed notes when a chunk came, and how long its tokens took.
func (r *relay) timed(s lifecycle.Sample) {
	gap, tokens, think := r.x.life.Clock.Take(time.Now(), s)
	if tokens > 0 {
		phase := phaseAnswerITL
		if think {
			phase = phaseThinkITL
		}
		r.x.g.count.phases[phase].observe(gap, tokens)
	}
}

// split tells thought from answer where the engine does not. It is true where all that the
// chunk said is held back, or was a marker.
func (r *relay) split() (nothing bool) {
	if r.thoughts == nil {
		return false
	}
	data, changed := r.thoughts.Rewrite(&r.chunk)
	if !changed {
		return false
	}
	c := &r.chunk
	c.Parse(data)
	if nothing = c.Blank && c.Choices == 1 && !c.Says(); nothing {
		r.timed(lifecycle.Sample{Thought: r.thoughts.Thinks(), Tokens: 1}) // a token came, whatever is shown of it
	}
	return nothing
}

// release gives out what is held back of an answer that its engine did not end.
func (r *relay) release() {
	if r.thoughts == nil || r.complete() {
		return
	}
	rest := r.thoughts.Rest()
	view, isObject := openai.ViewBody(r.x.ownChunk([]openai.CompletionChoice{}, nil))
	if rest != nil && isObject {
		r.ready = openai.AppendEvent(r.ready, view.With(openai.Edit{Name: "choices", Value: rest}))
	}
}

// onlyOurs: the engine sends it because the gateway asked for token ids, and says
// nothing else by it.
func (r *relay) onlyOurs() bool {
	c := &r.chunk
	return r.hidden() && c.Blank && c.Ends == 0 && c.Usage == nil
}

// hidden: the client did not ask for the ids that the engine tells.
func (r *relay) hidden() bool { return r.x.life.Answer.Tells && !r.x.life.Request.WantsIDs }

// mode is how the stream can go on, now that its first chunk is here.
func (r *relay) mode() (lifecycle.ResumeMode, string) {
	about := r.call.Engine.About.Load()
	mode, why := r.x.life.Mode(about.Kind, about.MaxContext)
	switch {
	case mode == lifecycle.ResumeNever:
	case !r.chunk.HasTokens:
		mode, why = lifecycle.ResumeNever, "the engine does not tell which tokens it sent"
	case mode == lifecycle.ResumeGreedy && len(r.x.life.Answer.Prompt) == 0:
		mode, why = lifecycle.ResumeNever, "the engine does not tell the prompt's tokens"
	}
	return mode, why
}

const (
	// maxHeld is how many bytes of events may be held back, before the first that
	// says something, for one more to be. One event always is, whatever it weighs:
	// the first may have the tokens of a long prompt.
	maxHeld = 1 << 20
	// maxResumed is how many tokens of an answer are kept for another engine to go
	// on after.
	maxResumed = 1 << 20
)

func (r *relay) saysNothing() *lifecycle.Trouble {
	fault := openai.Unavailable("engine %s sent %d bytes of events that say nothing", r.call.Engine.Name(), len(r.held))
	return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Engine: r.call.Engine.Key, Fault: fault}
}

// engineFault is an error that an engine tells in its stream.
func (r *relay) engineFault() *lifecycle.Trouble {
	fault := r.call.Complaint(500, r.chunk.Raw())
	t := &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Answered: true, Engine: r.call.Engine.Key, Fault: openai.Unavailable("%s", fault.Record)}
	if fault.Type == openai.TypeInvalid {
		fault.Status = 400
		t.Kind, t.Fault = lifecycle.Refused, fault
	}
	return t
}

// learn takes from a chunk what only the gateway needs.
func (r *relay) learn() {
	a, c := &r.x.life.Answer, &r.chunk
	if len(c.PromptTokens) > 0 && len(a.Prompt) == 0 {
		a.Prompt = append(a.Prompt, c.PromptTokens...)
		r.x.learn(a.Prompt)
	}
	if a.ID == nil {
		a.ID, a.Created = append(a.ID, c.Get("id")...), append(a.Created, c.Get("created")...)
	}
	if rep := openai.ParseReport(c.Report); rep != nil {
		r.report = rep
		r.x.noteForced(rep)
		if !r.resumed { // what is computed again is no part of the way to the first token
			r.x.reported(rep)
		}
	}
	r.x.noteStopped(c)
	a.Note(c)
}

// settle counts the tokens that the client has now. An engine that goes on
// exactly knows itself what it held back; for others the answer so far ends
// where a token's text is known to be complete, and the rest is said again.
func (r *relay) settle() {
	a, c := &r.x.life.Answer, &r.chunk
	tokens := max(len(c.Tokens), boolInt(!c.HasTokens && (c.Answered || c.Thought)))
	a.Tokens += tokens
	if d := r.x.departure; d != nil {
		d.Answered.Store(int64(a.Tokens))
	}
	if c.Thought {
		// Where a thought ends within a chunk, no engine tells where.
		a.Thought += tokens - boolInt(c.Answered && tokens > 0)
	}
	if c.Answered && a.Thought > 0 {
		r.x.thoughtEnded()
	}
	if r.x.life.Route.Resume == lifecycle.ResumeNever {
		return
	}
	if (c.Answered || c.Thought) && !c.HasTokens {
		r.x.cannotResume("the engine did not tell which tokens it sent")
		return
	}
	if len(a.SoFar)+len(a.Beyond.Tokens) > maxResumed {
		a.SoFar, a.Beyond = nil, lifecycle.Overlap{}
		r.x.cannotResume("the answer is longer than any that goes on elsewhere")
		return
	}
	if r.x.life.Route.Resume == lifecycle.ResumeGreedy && (c.Thought || r.thoughts.Holds()) {
		r.x.life.Route.Thinks = true
		a.Beyond.Tokens = append(a.Beyond.Tokens, c.Tokens...)
		return
	}
	if r.x.life.Route.Resume == lifecycle.ResumeExact {
		a.SoFar = append(a.SoFar, c.Tokens...)
		return
	}
	a.Beyond.Tokens = append(a.Beyond.Tokens, c.Tokens...)
	switch {
	case !c.Answered:
	case r.whole && r.again.IsEmpty():
		r.x.life.Route.Thinks = false
		a.SoFar = append(a.SoFar, a.Beyond.Tokens...)
		a.Beyond = lifecycle.Overlap{}
	default:
		a.Beyond.Text = append(a.Beyond.Text, r.said()...)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// shown is the chunk as the client sees it; bytes stay as they are unless they
// must not.
func (r *relay) shown() []byte {
	c, a := &r.chunk, &r.x.life.Answer
	hidden := r.hidden()
	forced := r.x.forcedEdits(c)
	strip := hidden || c.Report != nil || c.Transfers || c.ForcedEnd != "" || len(forced) > 0
	switch {
	case r.greedy:
		return r.translated()
	case r.resumed:
		return c.Without(hidden, append(forced, openai.Edit{Name: "id", Value: a.ID}, openai.Edit{Name: "created", Value: orNull(a.Created)})...)
	case strip:
		return c.Without(hidden, forced...)
	}
	return c.Raw()
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("0")
	}
	return raw
}

// thoughtsOf is nil where an engine's chunks go as they come.
func (x *exchange) thoughtsOf(e *roster.Engine) *thought.Split {
	about := e.About.Load()
	if !x.life.Request.IsChat() || about.Kind == openai.KindMeridian {
		return nil // text of completions is what was generated, and reference engines split
	}
	markers := x.g.thinking(x.life.Request)
	if markers.Whole || len(markers.Ends) == 0 {
		return nil
	}
	name := "reasoning_content"
	if about.Kind == openai.KindVLLM {
		name = "reasoning"
	}
	return thought.New(thought.Options{
		Markers: markers, Opened: markers.Opened && x.life.Request.BeginsThought(), Name: name,
		Mute: string(x.life.Request.Body.Get("include_reasoning")) == "false", Answers: x.life.Request.Each, Splits: &e.Splits,
	})
}

// splitWhole is a whole answer with thoughts apart, which chunk then is.
func (x *exchange) splitWhole(e *roster.Engine, chunk *openai.Chunk) []byte {
	if t := x.thoughtsOf(e); t != nil {
		if data, changed := t.Rewrite(chunk); changed {
			chunk.Parse(data)
		}
	}
	return chunk.Raw()
}

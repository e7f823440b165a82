package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"meridian/kv"
	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/thought"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// relay brings the events of one decode leg to the client, and learns what it
// needs to go on elsewhere. An event is passed on whole or not at all.
type relay struct {
	x        *exchange
	call     *upstream.Call
	greedy   bool           // the leg is a completion whose prompt ends with the answer so far
	resumed  bool           // the client has the beginning from another engine
	arrived  func() bool    // false: too late
	thoughts *thought.Split // nil where the engine's chunks go as they come

	chunk openai.Chunk
	now   kv.Instant // when it came
	whole bool       // the chunk is one token, with its text
	text  string     // of a greedy leg's chunk, without what the client has
	held  []byte     // events that say nothing yet, before the first that does
	ready []byte     // events to be written
}

// flushBytes is how much is gathered at most before it is written.
const flushBytes = 32 << 10

// run returns when the answer is complete, or why it is not.
func (r *relay) run() *lifecycle.Trouble {
	if !r.greedy {
		r.thoughts = r.x.g.thoughtsOf(r.x.life.Request, r.call.Engine)
	}
	events := openai.NewEventReader(r.call.Response.Body, openai.MaxEvent)
	for {
		data, err := events.Next()
		if err != nil {
			return r.broken(err)
		}
		r.call.Alive(r.x.g.options.StallTimeout)
		if string(data) == openai.Done {
			if !r.x.life.HasLeft() {
				r.finish()
			}
			r.flush()
			return nil
		}
		if t := r.take(data); t != nil {
			return r.brokenOff(t)
		}
		if !events.Ready() || len(r.ready) > flushBytes {
			r.flush()
		}
		if r.hangsUp() {
			r.flush()
			return nil
		}
		if r.x.out.Err != nil || r.x.ctx.Err() != nil {
			return r.clientGone()
		}
	}
}

// broken says what the end of the connection means.
func (r *relay) broken(err error) *lifecycle.Trouble {
	if r.x.life.HasLeft() { // it has said all that it had to
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
	r.ready = appendUsage(append(r.ready, r.held...), r.x.life)
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
	r.now = instant(time.Now())
	if !r.chunk.Parse(data) {
		r.ready = openai.AppendEvent(r.ready, data)
		return nil
	}
	c := &r.chunk
	if c.Fault != nil {
		return r.engineFault()
	}
	if x.life.Leaves(c) {
		return nil
	}
	if c.Moved {
		return leftUnasked(r.call.Engine)
	}
	if r.split() {
		return nil
	}
	if c.Report != nil {
		x.life.Reported(openai.ParseReport(c.Report), x.promised.beside())
	}
	x.life.Hear(c)
	r.whole = c.Answered && len(c.Tokens) == 1
	if c.Says() && !r.arrived() {
		return r.call.TooLate()
	}
	if r.greedy {
		if t := r.cut(); t != nil {
			x.tell()
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
	case !c.Says() && !x.life.Begun():
		if len(r.held) > maxHeld {
			return r.saysNothing()
		}
		r.held = openai.AppendEvent(r.held, r.shown())
	default:
		r.give()
	}
	x.tell()
	return nil
}

// give makes ready what the client gets of a chunk, after what was held back.
func (r *relay) give() {
	x, c := r.x, &r.chunk
	if !x.life.Begun() {
		x.life.Begin(known(r.call.Engine), c)
		r.ready = append(r.ready, r.held...)
		r.held = nil
	}
	p := lifecycle.Piece{Chunk: c, Whole: r.whole, Held: r.thoughts.Holds()}
	if !r.onlyOurs() {
		r.ready = openai.AppendEvent(r.ready, r.shown())
		x.recorder.Add(c, r.greedy)
		p.Ends = c.Ends
	}
	if r.greedy {
		p.Text = &r.text
	}
	tokens := x.life.Settle(p, r.now)
	if d := x.movable; d != nil {
		d.Answered.Store(int64(tokens))
	}
}

// timed notes when a chunk came, and how long its tokens took.
func (r *relay) timed(s lifecycle.Sample) {
	gap, tokens, think := r.x.life.Took(r.now, s)
	if tokens > 0 {
		phase := phaseAnswerITL
		if think {
			phase = phaseThinkITL
		}
		r.x.g.count.phases[phase].observe(lasting(gap), tokens)
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
	view, isObject := openai.ViewBody(ownChunk(r.x.life, []openai.CompletionChoice{}, nil))
	if rest != nil && isObject {
		r.ready = openai.AppendEvent(r.ready, view.With(openai.Edit{Name: "choices", Value: rest}))
	}
}

// onlyOurs: the engine sends it because the gateway asked for token ids, and says
// nothing else by it.
func (r *relay) onlyOurs() bool {
	c := &r.chunk
	return r.x.life.HidesIDs() && c.Blank && c.Ends == 0 && c.Usage == nil
}

// maxHeld is how many bytes of events may be held back, before the first that
// says something, for one more to be. One event always is, whatever it weighs:
// the first may have the tokens of a long prompt.
const maxHeld = 1 << 20

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

// shown is the chunk as the client sees it; bytes stay as they are unless they
// must not.
func (r *relay) shown() []byte {
	c := &r.chunk
	hidden := r.x.life.HidesIDs()
	forced := forcedEdits(r.x.life.Record, c)
	strip := hidden || c.Report != nil || c.Transfers || c.ForcedEnd != "" || len(forced) > 0
	switch {
	case r.greedy:
		return r.translated()
	case r.resumed:
		id, created := r.x.life.Head()
		return c.Without(hidden, append(forced, openai.Edit{Name: "id", Value: id}, openai.Edit{Name: "created", Value: orNull(created)})...)
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
func (g *Gateway) thoughtsOf(c *request.Request, e *roster.Engine) *thought.Split {
	about := e.About.Load()
	if !c.IsChat() || about.Kind == openai.KindMeridian {
		return nil // text of completions is what was generated, and reference engines split
	}
	markers := g.thinking(c)
	if markers.Whole || len(markers.Ends) == 0 {
		return nil
	}
	name := "reasoning_content"
	if about.Kind == openai.KindVLLM {
		name = "reasoning"
	}
	return thought.New(thought.Options{
		Markers: markers, Opened: markers.Opened && c.BeginsThought(), Name: name,
		Mute: string(c.Body.Get("include_reasoning")) == "false", Answers: c.Each, Splits: &e.Splits,
	})
}

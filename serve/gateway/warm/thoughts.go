package warm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/gateway/request"
	"meridian/serve/gateway/roster"
	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// What a template strips of the next turn need not be kept, nor what stands behind it: no prompt
// will begin so, and a history that is computed ahead takes its place. Where a template keeps thoughts, the answer as it was generated is what the
// next turn begins with. So an engine is told how a thought ends, and keeps of an answer that
// has such an end the prompt alone, once another engine, or itself, has shown with /tokenize
// that the template strips thoughts. Until then it keeps all, as engines do that know nothing
// of this.

// Template is what decides what is made of messages. Thoughts beside a text and in it are two:
// one may be stripped and the other not.
type Template struct {
	Model, Options string
	Beside         bool // how thoughts come
}

// TemplateOf is that of a request. Whose is its own, or has much to say, is not told of.
func TemplateOf(c *request.Request) (t Template, ok bool) {
	options := bytes.TrimSpace(c.Body.Get("chat_template_kwargs"))
	if len(options) > MaxTemplateOptions || c.Body.Get("chat_template") != nil {
		return t, false
	}
	return Template{Model: c.Model, Options: string(options)}, true
}

const (
	MaxTemplateOptions = 1 << 10
	// MaxTemplates is how many are remembered.
	MaxTemplates = 256
	// maxThoughtEnd is how many tokens the end of a thought may have.
	maxThoughtEnd = 16
	// tokenizeTimeout bounds a question, maxTokenized its answer.
	tokenizeTimeout = 5 * time.Second
	maxTokenized    = 64 << 10
)

// ThoughtEnd is the tokens after which an engine is to keep nothing of an answer to this
// request; nil: it keeps all of it. Where tools may be called it does: between a call and its
// result templates keep thoughts that they strip later.
func (w *Warmer) ThoughtEnd(c *request.Request, e *roster.Engine) []uint32 {
	if !e.Shares() || !e.MayWarm() || !c.MayWarm() || c.Body.Get("tools") != nil {
		return nil
	}
	t, ok := TemplateOf(c)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// How the answer's thought will come is not known yet: what keeps either keeps all.
	var end []uint32
	for _, t.Beside = range []bool{false, true} {
		if one, known := w.templates[t]; known {
			if one == nil {
				return nil
			}
			end = one
		}
	}
	return end
}

// learnFrom finds out what the template of a request does whose answer had a thought, if that is
// not known: one at a time is asked about, and nothing waits for it.
func (w *Warmer) learnFrom(a Ended) {
	if !a.Finished || a.Thought == 0 || !a.Request.MayWarm() {
		return
	}
	t, foreseen := TemplateOf(a.Request)
	if !foreseen {
		return
	}
	t.Beside = true // else it would not have been told from the answer
	engines := w.options.Roster.All()
	at := slices.IndexFunc(engines, func(e *roster.Engine) bool {
		return e.About.Load().Serves(a.Request.Model) && e.Shares() && e.MayWarm() && e.IsIdle()
	})
	if at < 0 {
		return
	}
	w.mu.Lock()
	_, known := w.templates[t]
	skip := known || w.learning || w.ctx.Err() != nil
	w.learning = w.learning || !skip
	w.mu.Unlock()
	if skip {
		return
	}
	w.active.Go(func() {
		w.Learn(w.ctx, engines[at], t)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.learning = false
	})
}

// Learn finds out whether a template strips thoughts, if that is not known.
// One that an engine says nothing of counts as one that keeps them. Where the engine was lost,
// or was too busy to say, the next history asks again.
func (w *Warmer) Learn(ctx context.Context, e *roster.Engine, t Template) {
	if !e.Shares() {
		return
	}
	w.mu.Lock()
	_, known := w.templates[t]
	w.mu.Unlock()
	if known {
		return
	}
	end, known := w.strippedThought(ctx, e, t)
	if !known || ctx.Err() != nil { // it was not told, or it was given up
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.templates) >= MaxTemplates {
		for one := range w.templates { // any: the others stay known
			delete(w.templates, one)
			break
		}
	}
	w.templates[t] = end
}

// Learned is how a template's thoughts end where it strips them; known is false where that is not
// known yet.
func (w *Warmer) Learned(t Template) (end []uint32, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end, known = w.templates[t]
	return end, known
}

// Known is of how many templates it is known what they do; learning: of one more an engine is
// being asked.
func (w *Warmer) Known() (templates int, learning bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.templates), w.learning
}

// A chat with a thought in it, as clients send back what they got: beside the text, or in it.
const (
	plainTurn   = `{"role":"assistant","content":"b"}`
	besideTurn  = `{"role":"assistant","content":"b","reasoning":"c","reasoning_content":"c"}`
	withinTurn  = `{"role":"assistant","content":"<think>\nc\n</think>\n\nb"}`
	beforeTurn  = `{"role":"user","content":"a"}`
	followsTurn = `{"role":"user","content":"d"}`
)

// strippedThought is the tokens that end a thought, where the template strips it; else nil.
// Known is false where the engine did not answer.
func (w *Warmer) strippedThought(ctx context.Context, e *roster.Engine, t Template) (end []uint32, known bool) {
	thoughtful := withinTurn
	if t.Beside {
		thoughtful = besideTurn
	}
	model, err := json.Marshal(t.Model)
	if err != nil {
		return nil, true
	}
	ask := func(name, value string) ([]uint32, bool) {
		body := map[string]json.RawMessage{"model": model, name: json.RawMessage(value)}
		if name == "messages" {
			body["add_generation_prompt"] = json.RawMessage("false")
			body["chat_template_kwargs"] = json.RawMessage(cmp.Or(t.Options, "{}"))
		} else {
			body["add_special_tokens"] = json.RawMessage("false")
		}
		return w.tokenize(ctx, e, body)
	}
	plain, known := ask("messages", "["+beforeTurn+","+plainTurn+","+followsTurn+"]")
	if len(plain) == 0 {
		return nil, known
	}
	thought, known := ask("messages", "["+beforeTurn+","+thoughtful+","+followsTurn+"]")
	if !slices.Equal(plain, thought) {
		return nil, known
	}
	end, known = ask("prompt", `"</think>"`)
	if len(end) == 0 || len(end) > maxThoughtEnd {
		return nil, known
	}
	return end, known
}

// tokenize asks an engine for the tokens of a prompt or of a chat; none where it does not tell
// them. Answered is false where it may tell them another time.
func (w *Warmer) tokenize(ctx context.Context, e *roster.Engine, members map[string]json.RawMessage) (tokens []uint32, answered bool) {
	body, err := json.Marshal(members)
	if err != nil {
		return nil, true // no other time either
	}
	ctx, done := context.WithTimeout(ctx, tokenizeTimeout)
	defer done()
	c, trouble := w.options.Upstream.Send(ctx, upstream.Leg{Engine: e, Path: "/tokenize", Body: body, Client: &openai.Body{}, ID: upstream.NewTransfer().String(), Silent: 2 * tokenizeTimeout})
	if trouble != nil {
		return nil, trouble.Kind == lifecycle.Refused
	}
	defer c.Close()
	data, trouble := c.ReadAll(maxTokenized)
	if trouble != nil {
		return nil, false
	}
	var answer struct {
		Tokens []uint32 `json:"tokens"`
	}
	if json.Unmarshal(data, &answer) != nil {
		return nil, true
	}
	return answer.Tokens, true
}

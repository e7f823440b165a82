package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"meridian/see/ledger"
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

// template is what decides what is made of messages. Thoughts beside a text and in it are two:
// one may be stripped and the other not.
type template struct {
	model, options string
	beside         bool // how thoughts come
}

// templateOf is that of a request. Whose is its own, or has much to say, is not told of.
func templateOf(c *request.Request) (t template, ok bool) {
	options := bytes.TrimSpace(c.Body.Get("chat_template_kwargs"))
	if len(options) > maxTemplateOptions || c.Body.Get("chat_template") != nil {
		return t, false
	}
	return template{model: c.Model, options: string(options)}, true
}

const (
	maxTemplateOptions = 1 << 10
	// maxTemplates is how many are remembered.
	maxTemplates = 256
	// maxThoughtEnd is how many tokens the end of a thought may have.
	maxThoughtEnd = 16
	// tokenizeTimeout bounds a question, maxTokenized its answer.
	tokenizeTimeout = 5 * time.Second
	maxTokenized    = 64 << 10
)

// thoughtEnd is the tokens after which an engine is to keep nothing of an answer to this
// request; nil: it keeps all of it. Where tools may be called it does: between a call and its
// result templates keep thoughts that they strip later.
func (w *warmer) thoughtEnd(c *request.Request, e *roster.Engine) []uint32 {
	if !e.Shares() || !e.MayWarm() || !c.MayWarm() || c.Body.Get("tools") != nil {
		return nil
	}
	t, ok := templateOf(c)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// How the answer's thought will come is not known yet: what keeps either keeps all.
	var end []uint32
	for _, t.beside = range []bool{false, true} {
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
func (w *warmer) learnFrom(x *exchange) {
	if x.rec.Outcome != ledger.Finished || x.answer.thought == 0 || !x.request.MayWarm() {
		return
	}
	h := &history{}
	if h.template, h.foreseen = templateOf(x.request); !h.foreseen {
		return
	}
	h.template.beside = true // else it would not have been told from the answer
	engines := w.g.roster.All()
	at := slices.IndexFunc(engines, func(e *roster.Engine) bool {
		return e.About.Load().Serves(x.request.Model) && e.Shares() && e.MayWarm() && e.IsIdle()
	})
	if at < 0 {
		return
	}
	w.mu.Lock()
	_, known := w.templates[h.template]
	skip := known || w.learning || w.ctx.Err() != nil
	w.learning = w.learning || !skip
	w.mu.Unlock()
	if skip {
		return
	}
	w.g.active.Go(func() {
		w.learn(w.ctx, engines[at], h)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.learning = false
	})
}

// learn finds out whether the template of a history strips thoughts, if that is not known.
// One that an engine says nothing of counts as one that keeps them. Where the engine was lost,
// or was too busy to say, the next history asks again.
func (w *warmer) learn(ctx context.Context, e *roster.Engine, h *history) {
	if !h.foreseen || !e.Shares() {
		return
	}
	w.mu.Lock()
	_, known := w.templates[h.template]
	w.mu.Unlock()
	if known {
		return
	}
	end, known := w.g.strippedThought(ctx, e, h)
	if !known || ctx.Err() != nil { // nobody said, or it was given up
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.templates) >= maxTemplates {
		for one := range w.templates { // any: the others stay known
			delete(w.templates, one)
			break
		}
	}
	w.templates[h.template] = end
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
func (g *Gateway) strippedThought(ctx context.Context, e *roster.Engine, h *history) (end []uint32, known bool) {
	thoughtful := withinTurn
	if h.template.beside {
		thoughtful = besideTurn
	}
	model, err := json.Marshal(h.template.model)
	if err != nil {
		return nil, true
	}
	ask := func(name, value string) ([]uint32, bool) {
		body := map[string]json.RawMessage{"model": model, name: json.RawMessage(value)}
		if name == "messages" {
			body["add_generation_prompt"] = json.RawMessage("false")
			body["chat_template_kwargs"] = json.RawMessage(cmp.Or(h.template.options, "{}"))
		} else {
			body["add_special_tokens"] = json.RawMessage("false")
		}
		return g.tokenize(ctx, e, body)
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
func (g *Gateway) tokenize(ctx context.Context, e *roster.Engine, members map[string]json.RawMessage) (tokens []uint32, answered bool) {
	body, err := json.Marshal(members)
	if err != nil {
		return nil, true // no other time either
	}
	ctx, done := context.WithTimeout(ctx, tokenizeTimeout)
	defer done()
	c, trouble := g.upstream.Send(ctx, upstream.Leg{Engine: e, Path: "/tokenize", Body: body, Client: &openai.Body{}, ID: newTransfer().String(), Silent: 2 * tokenizeTimeout})
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

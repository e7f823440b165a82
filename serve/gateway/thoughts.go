package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"meridian/serve/openai"
)

// Thinking is what the gateway knows of how a model thinks.
type Thinking struct {
	// Starts and Ends are texts that mark thoughts; without Ends nothing is split.
	Starts, Ends []string
	// StartIDs and EndIDs are tokens that do, where they are known: by them thoughts are
	// counted.
	StartIDs, EndIDs []uint32
	// Opened: the chat template ends a prompt with a start marker.
	Opened bool
	// Whole: answers are not split.
	Whole bool
	// Limit is how vLLM is told how long a thought may be.
	Limit ThinkLimit
}

// ThinkLimit is a member of a request that limits a thought.
type ThinkLimit uint8

// The members that there are.
const (
	// LimitNone: vLLM is told nothing.
	LimitNone ThinkLimit = iota
	// LimitBudget is thinking_token_budget, vLLM's own.
	LimitBudget
	// LimitXArgs is meridian_max_think_tokens in vllm_xargs.
	LimitXArgs
)

// thinking is what is known of the model of a request.
func (g *Gateway) thinking(c *clientRequest) Thinking {
	if g.options.Thinking == nil {
		return Thinking{}
	}
	return g.options.Thinking(c.model)
}

// thoughts makes of the chat of an engine that leaves thoughts in the text what one would
// send that splits them: chunk by chunk, so that everything behind it sees only the latter.
// It is of one leg.
type thoughts struct {
	engine  *engine
	markers Thinking
	opened  bool
	// name is how the engine's kind calls a thought.
	name string
	// mute: the client wants no thoughts, which a parser would then keep to itself.
	mute  bool
	index map[int]*thoughtOf
	most  int // answers that there may be
	open  int // of index: those that are not done
	// uncounted: the tokens of a thought cannot be told.
	uncounted bool
}

// thoughtOf is the thought of one answer.
type thoughtOf struct {
	splitter
	whole  bool // the engine splits
	within bool // the last token was one of a thought
	ended  bool // and one has ended a thought
	tokens int  // of the thought
	done   bool // nothing is left to be told apart or counted
}

// thoughtsOf is nil where an engine's chunks go as they come.
func (x *exchange) thoughtsOf(e *engine) *thoughts {
	about := e.about.Load()
	if !x.request.isChat() || about.kind == openai.KindMeridian {
		return nil // text of completions is what was generated, and reference engines split
	}
	markers := x.g.thinking(x.request)
	if markers.Whole || len(markers.Ends) == 0 {
		return nil
	}
	t := &thoughts{
		engine: e, markers: markers, opened: markers.Opened && x.request.beginsThought(), name: "reasoning_content",
		index: make(map[int]*thoughtOf), most: x.request.each, uncounted: len(markers.EndIDs) == 0,
	}
	t.mute = string(x.request.body.Get("include_reasoning")) == "false"
	if about.kind == openai.KindVLLM {
		t.name = "reasoning"
	}
	return t
}

// beginsThought: where a template opens thoughts, it does for this request. It does not
// where the client has turned thinking off, or has a template of its own, or goes on with a
// message; and an answer that must fit a grammar from its first token has no room for one.
func (c *clientRequest) beginsThought() bool {
	if c.thinksNot() || openai.IsTrue(c.body.Get("continue_final_message")) || string(c.body.Get("add_generation_prompt")) == "false" {
		return false
	}
	for name, value := range c.body.Members() {
		if constrains(name, value) {
			return false
		}
	}
	choice := bytes.TrimSpace(c.body.Get("tool_choice"))
	return string(choice) != `"required"` && (len(choice) == 0 || choice[0] != '{')
}

// constrains: a member that makes another prompt, or leaves an answer no room for a thought.
func constrains(name string, value json.RawMessage) bool {
	switch {
	case string(value) == "null":
		return false
	case name == "response_format":
		for member, kind := range openai.Members(value) {
			if member == "type" && string(kind) == `"text"` {
				return false
			}
		}
		return true
	}
	return name == "chat_template" || name == "structured_outputs" || strings.HasPrefix(name, "guided_")
}

// rewrite returns a chunk, or a whole answer, with thoughts apart, and whether that is
// another one than came; c is what was found in it. What needs no change stays byte for byte.
func (t *thoughts) rewrite(c *openai.Chunk) (data []byte, changed bool) {
	if t.done(c) {
		return c.Raw(), false
	}
	view, isObject := openai.ViewBody(c.Raw())
	if !isObject {
		return c.Raw(), false
	}
	var edits []openai.Edit
	if choices, changed := t.choices(view.Get("choices")); changed {
		edits = append(edits, openai.Edit{Name: "choices", Value: choices})
	}
	if usage := t.usage(c.Usage); usage != nil {
		edits = append(edits, openai.Edit{Name: "usage", Value: usage})
	}
	if len(edits) == 0 {
		return c.Raw(), false
	}
	return view.With(edits...), true
}

// done: all answers have been told apart, and nothing is left to be counted.
func (t *thoughts) done(c *openai.Chunk) bool {
	return c.Usage == nil && len(t.index) == t.most && t.open == 0
}

func (t *thoughts) choices(list []byte) (rewritten []byte, changed bool) {
	out := []byte{'['}
	for element := range openai.Elements(list) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		one, other := t.choice(element)
		out, changed = append(out, one...), changed || other
	}
	return append(out, ']'), changed
}

// of is the thought of the answer with an index, nil for one that was not asked for.
func (t *thoughts) of(raw json.RawMessage) *thoughtOf {
	at := 0
	if raw != nil {
		var err error
		if at, err = strconv.Atoi(string(raw)); err != nil || at < 0 || at >= t.most {
			return nil
		}
	}
	one := t.index[at]
	if one == nil {
		one = &thoughtOf{
			splitter: splitter{starts: t.markers.Starts, ends: t.markers.Ends, opened: t.opened},
			whole:    t.engine.splits.Load(), within: t.opened,
		}
		t.index[at] = one
		t.open++
	}
	return one
}

func (t *thoughts) choice(element []byte) (rewritten []byte, changed bool) {
	choice, isObject := openai.ViewBody(element)
	if !isObject {
		return element, false
	}
	one := t.of(choice.Get("index"))
	if one == nil {
		return element, false
	}
	defer t.settle(one)
	member, isWhole := "delta", false
	if choice.Get("message") != nil {
		member, isWhole = "message", true
	}
	said, isObject := openai.ViewBody(choice.Get(member))
	t.count(one, choice.Get("token_ids"), isObject && saysText(&said), isObject && hasThought(&said))
	if one.whole || !isObject {
		return element, false
	}
	text, readable := contentOf(&said)
	if !readable {
		return element, false
	}
	before := one.held
	if hasThought(&said) {
		t.engine.splits.Store(true)
		one.whole, one.held = true, ""
		if before == "" {
			return element, false
		}
		return choice.With(openai.Edit{Name: member, Value: said.With(openai.Edit{Name: "content", Value: openai.Quote(before + text)})}), true
	}
	last := isWhole || hasText(choice.Get("finish_reason")) || len(said.Get("tool_calls")) > len("[]")
	thought, answer := one.take(text, last)
	if before == "" && thought == "" && answer == text {
		return element, false
	}
	return choice.With(openai.Edit{Name: member, Value: t.resaid(&said, isWhole, thought, answer)}), true
}

// settle notes that what follows of an answer goes as it comes.
func (t *thoughts) settle(one *thoughtOf) {
	told := one.whole && one.ended || one.state == answering && !one.within
	if !one.done && (told || t.uncounted && (one.whole || one.state == answering)) {
		one.done = true
		t.open--
	}
}

// holds: something of an answer is held back.
func (t *thoughts) holds() bool {
	if t != nil {
		for _, one := range t.index {
			if one.held != "" {
				return true
			}
		}
	}
	return false
}

// thinks: the first answer is within its thought.
func (t *thoughts) thinks() bool { return t.index[0] != nil && t.index[0].state == thinking }

// rest is what is held back of answers that an engine did not end, as choices of a chunk; nil
// where that is nothing.
func (t *thoughts) rest() json.RawMessage {
	if !t.holds() {
		return nil
	}
	list := []byte{'['}
	for _, at := range slices.Sorted(maps.Keys(t.index)) {
		if one := t.index[at]; one.held != "" {
			if len(list) > 1 {
				list = append(list, ',')
			}
			empty, _ := openai.ViewBody([]byte("{}"))
			thought, answer := one.take("", true)
			list = fmt.Appendf(list, `{"index":%d,"delta":%s,"finish_reason":null}`, at, t.resaid(&empty, false, thought, answer))
		}
	}
	return append(list, ']')
}

// resaid is a delta or a message with its thought apart.
func (t *thoughts) resaid(said *openai.Body, isWhole bool, thought, answer string) []byte {
	var edits []openai.Edit
	if thought != "" && !t.mute {
		edits = append(edits, openai.Edit{Name: t.name, Value: openai.Quote(thought)})
	}
	content := openai.Edit{Name: "content"}
	switch {
	case answer != "":
		content.Value = openai.Quote(answer)
	case isWhole:
		content.Value = json.RawMessage("null")
	case said.Get("role") != nil:
		content.Value = json.RawMessage(`""`)
	}
	return said.With(append(edits, content)...)
}

// contentOf is the text of a delta or a message, "" where it is null or missing; readable is
// false for parts and what nobody knows.
func contentOf(said *openai.Body) (text string, readable bool) {
	raw := said.Get("content")
	if raw == nil || string(raw) == "null" {
		return "", true
	}
	readable = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
	return text, readable
}

// hasThought: the engine has split it.
func hasThought(said *openai.Body) bool {
	return hasText(said.Get("reasoning")) || hasText(said.Get("reasoning_content"))
}

func saysText(said *openai.Body) bool { return hasText(said.Get("content")) || hasThought(said) }

// hasText: a raw member is a text that says something.
func hasText(raw json.RawMessage) bool { return len(raw) > len(`""`) && raw[0] == '"' }

// splitWhole is a whole answer with thoughts apart, which chunk then is.
func (x *exchange) splitWhole(e *engine, chunk *openai.Chunk) []byte {
	if t := x.thoughtsOf(e); t != nil {
		if data, changed := t.rewrite(chunk); changed {
			chunk.Parse(data)
		}
	}
	return chunk.Raw()
}

// Package thought tells thoughts from answers where an engine leaves them in the text, and
// counts their tokens. What it makes of a chat is what an engine with a parser would have sent.
package thought

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"meridian/serve/openai"
)

// Markers is what the gateway knows of how a model thinks.
type Markers struct {
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
	Limit Limit
}

// Limit is a member of a request that limits a thought.
type Limit uint8

// The members that there are.
const (
	// LimitNone: vLLM is told nothing.
	LimitNone Limit = iota
	// LimitBudget is thinking_token_budget, vLLM's own.
	LimitBudget
	// LimitXArgs is meridian_max_think_tokens in vllm_xargs.
	LimitXArgs
)

// Options say whose thoughts are split.
type Options struct {
	Markers Markers
	// Opened: the prompt has ended with a start marker.
	Opened bool
	// Name is how the engine's kind calls a thought.
	Name string
	// Mute: the client wants no thoughts, which a parser would then keep to itself.
	Mute bool
	// Answers is how many there may be.
	Answers int
	// Splits: the engine has sent a thought apart from an answer, so that it tells them apart
	// itself. It is the engine's, for all legs.
	Splits *atomic.Bool
}

// Split makes of the chat of an engine that leaves thoughts in the text what one would
// send that splits them: chunk by chunk, so that everything behind it sees only the latter.
// It is of one leg; nil splits nothing.
type Split struct {
	options Options
	index   map[int]*answerState
	open    int // of index: those that are not done
	// uncounted: the tokens of a thought cannot be told.
	uncounted bool
}

// New begins with the answers of one leg.
func New(o Options) *Split {
	return &Split{options: o, index: make(map[int]*answerState), uncounted: len(o.Markers.EndIDs) == 0}
}

// answerState is the thought of one answer.
type answerState struct {
	splitter
	whole  bool // the engine splits
	within bool // the last token was one of a thought
	ended  bool // and one has ended a thought
	tokens int  // of the thought
	done   bool // nothing is left to be told apart or counted
}

// Rewrite returns a chunk, or a whole answer, with thoughts apart, and whether that is
// another one than came; c is what was found in it. What needs no change stays byte for byte.
func (t *Split) Rewrite(c *openai.Chunk) (data []byte, changed bool) {
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
func (t *Split) done(c *openai.Chunk) bool {
	return c.Usage == nil && len(t.index) == t.options.Answers && t.open == 0
}

func (t *Split) choices(list []byte) (rewritten []byte, changed bool) {
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
func (t *Split) of(raw json.RawMessage) *answerState {
	at := 0
	if raw != nil {
		var err error
		if at, err = strconv.Atoi(string(raw)); err != nil || at < 0 || at >= t.options.Answers {
			return nil
		}
	}
	one := t.index[at]
	if one == nil {
		one = &answerState{
			splitter: splitter{starts: t.options.Markers.Starts, ends: t.options.Markers.Ends, opened: t.options.Opened},
			whole:    t.options.Splits.Load(), within: t.options.Opened,
		}
		t.index[at] = one
		t.open++
	}
	return one
}

func (t *Split) choice(element []byte) (rewritten []byte, changed bool) {
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
		t.options.Splits.Store(true)
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
func (t *Split) settle(one *answerState) {
	told := one.whole && one.ended || one.state == answering && !one.within
	if !one.done && (told || t.uncounted && (one.whole || one.state == answering)) {
		one.done = true
		t.open--
	}
}

// Holds: something of an answer is held back.
func (t *Split) Holds() bool {
	if t != nil {
		for _, one := range t.index {
			if one.held != "" {
				return true
			}
		}
	}
	return false
}

// Thinks: the first answer is within its thought.
func (t *Split) Thinks() bool { return t.index[0] != nil && t.index[0].state == thinking }

// Rest is what is held back of answers that an engine did not end, as choices of a chunk; nil
// where that is nothing.
func (t *Split) Rest() json.RawMessage {
	if !t.Holds() {
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
func (t *Split) resaid(said *openai.Body, isWhole bool, thought, answer string) []byte {
	var edits []openai.Edit
	if thought != "" && !t.options.Mute {
		edits = append(edits, openai.Edit{Name: t.options.Name, Value: openai.Quote(thought)})
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
// false for parts and what is not known.
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

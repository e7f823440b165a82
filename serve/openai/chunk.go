package openai

import (
	"encoding/json"
	"slices"
	"strconv"
)

// Chunk is what a gateway must know of an event in a stream, found without
// decoding it. It may be used again and again; what it found is good until the
// next Parse, and points into the data.
type Chunk struct {
	// Answered and Thought tell whether there is text of either kind.
	Answered, Thought bool
	// Visible: what is answered is more than white space, or no text.
	Visible bool
	// Choices is how many answers the chunk adds to, Ends how many of them end
	// here.
	Choices, Ends int
	// Moved: one of them ends as what goes on at another engine, however that is spelled.
	Moved bool
	// Tokens are the ids of the chunk's tokens; HasTokens tells whether the
	// engine says which they are, if only that there are none.
	Tokens    []uint32
	HasTokens bool
	// PromptTokens come once in a stream.
	PromptTokens []uint32
	// Blank: a delta without a member, and nothing of how likely its tokens are. vLLM sends them for the ids of tokens whose
	// text is held back, and only to those who ask for ids.
	Blank bool
	// Calls: the answer calls tools.
	Calls bool
	// Text is what is said to the user, raw; of several answers the last one's.
	Text json.RawMessage
	// Transfers: it names caches of engines, which are none of a client's.
	Transfers bool
	// ForcedEnd is why vLLM's engine ended the thought, one of the Forced, as Meridian's connector
	// writes it into stop_reason; of several answers the first one's.
	ForcedEnd string
	// FinishReason (of several answers the last one's), Usage, Report and Fault are raw, nil where there are none.
	FinishReason, Usage, Report, Fault json.RawMessage

	raw      []byte
	members  []member
	list     []byte // choices, of several members of that name the last
	elements []span // of list
	inner    []member
	delta    []member
	choices  []byte // rewritten
	out      []byte
}

// Parse looks at an event's data. It is false where that is no JSON object.
func (c *Chunk) Parse(data []byte) bool {
	*c = Chunk{
		raw: data, Tokens: c.Tokens[:0], PromptTokens: c.PromptTokens[:0],
		members: c.members[:0], elements: c.elements[:0], inner: c.inner[:0], delta: c.delta[:0], choices: c.choices[:0], out: c.out[:0],
	}
	if i := skipSpace(data, 0); i >= len(data) || data[i] != '{' {
		return false
	}
	c.members = appendMembers(c.members, data)
	for _, m := range c.members {
		value := given(data[m.value:m.end])
		switch string(m.name) {
		case "choices":
			c.list, c.elements = value, appendElements(c.elements[:0], value)
			for _, e := range c.elements {
				c.choice(value[e.start:e.end])
			}
		case "prompt_token_ids":
			c.PromptTokens, _ = appendIDs(c.PromptTokens[:0], value)
		case "usage":
			c.Usage = value
		case "meridian":
			c.Report = value
		case "error":
			c.Fault = value
		case "kv_transfer_params", "ec_transfer_params":
			c.Transfers = c.Transfers || value != nil
		}
	}
	c.Choices = len(c.elements)
	return true
}

// given is nil for null.
func given(value []byte) json.RawMessage {
	if string(value) == "null" {
		return nil
	}
	return value
}

// Get returns a member of the chunk as it stands there, or nil.
func (c *Chunk) Get(name string) json.RawMessage {
	b := Body{raw: c.raw, members: c.members}
	return b.Get(name)
}

// Raw is the chunk as it came.
func (c *Chunk) Raw() []byte { return c.raw }

// Says tells whether it adds anything for a client.
func (c *Chunk) Says() bool {
	return c.Answered || c.Thought || c.Ends > 0 || len(c.Tokens) > 0 || c.Usage != nil
}

func (c *Chunk) choice(data []byte) {
	c.inner = appendMembers(c.inner[:0], data)
	likely := false
	for _, m := range c.inner {
		value := given(data[m.value:m.end])
		switch string(m.name) {
		case "text":
			c.answered(value)
		case "delta", "message":
			c.said(value)
		case "finish_reason":
			if hasText(value) { // some engines say "" until they end
				c.Ends++
				c.FinishReason = value
				c.Moved = c.Moved || saysMoved(value)
			}
		case "stop_reason":
			if forced, _ := forcedEnd(value); c.ForcedEnd == "" {
				c.ForcedEnd = forced
			}
		case "token_ids":
			c.HasTokens = c.HasTokens || value != nil
			c.Tokens, _ = appendIDs(c.Tokens, value)
		case "prompt_token_ids":
			c.PromptTokens, _ = appendIDs(c.PromptTokens[:0], value)
		case "logprobs":
			likely = value != nil
		}
	}
	c.Blank = c.Blank && !likely
}

func saysMoved(finish []byte) bool {
	var reason string
	return json.Unmarshal(finish, &reason) == nil && reason == FinishMoved
}

func (c *Chunk) said(data []byte) {
	c.delta = appendMembers(c.delta[:0], data)
	c.Blank = len(c.delta) == 0
	for _, m := range c.delta {
		value := given(data[m.value:m.end])
		switch string(m.name) {
		case "content":
			c.answered(value)
		case "refusal":
			c.Answered, c.Visible = c.Answered || hasText(value), c.Visible || hasText(value)
		case "tool_calls":
			c.Calls = c.Calls || len(value) > len("[]")
			c.Answered, c.Visible = c.Answered || c.Calls, c.Visible || c.Calls
		case "reasoning_content", "reasoning":
			c.Thought = c.Thought || hasText(value)
		}
	}
}

func (c *Chunk) answered(text []byte) {
	c.Answered, c.Visible, c.Text = c.Answered || hasText(text), c.Visible || isVisible(text), text
}

// isVisible: a raw text has more than white space. Of escapes only those that people write
// are known.
func isVisible(raw []byte) bool {
	if !hasText(raw) {
		return false
	}
	for i := 1; i < len(raw)-1; i++ {
		switch {
		case raw[i] == ' ':
		case raw[i] == '\\' && (raw[i+1] == 'n' || raw[i+1] == 'r' || raw[i+1] == 't'):
			i++
		default:
			return true
		}
	}
	return false
}

func hasText(value []byte) bool { return len(value) > len(`""`) }

// Without returns the chunk without what only a gateway was to see: the report,
// whose caches are where, why a thought was ended and, unless the client has asked
// for them, the ids of tokens.
func (c *Chunk) Without(tokenIDs bool, edits ...Edit) []byte {
	edits = append(edits, Edit{Name: "meridian"})
	if c.Transfers {
		edits = append(edits, Edit{Name: "kv_transfer_params"}, Edit{Name: "ec_transfer_params"})
	}
	if tokenIDs {
		edits = append(edits, Edit{Name: "prompt_token_ids"})
	}
	if (tokenIDs || c.ForcedEnd != "") && len(c.elements) > 0 {
		edits = append(edits, Edit{Name: "choices", Value: c.choicesWithout(tokenIDs)})
	}
	c.out = appendEdited(c.out[:0], c.raw, c.members, edits)
	return c.out
}

var idMembers = []Edit{{Name: "token_ids"}, {Name: "prompt_token_ids"}}

func (c *Chunk) choicesWithout(tokenIDs bool) []byte {
	c.choices = append(c.choices[:0], '[')
	for i, e := range c.elements {
		if i > 0 {
			c.choices = append(c.choices, ',')
		}
		element := c.list[e.start:e.end]
		c.inner = appendMembers(c.inner[:0], element)
		var edits []Edit
		if tokenIDs {
			edits = idMembers
		}
		if c.ForcedEnd != "" {
			view := Body{raw: element, members: c.inner}
			if forced, stop := forcedEnd(view.Get("stop_reason")); forced != "" {
				edits = append(slices.Clip(edits), Edit{Name: "stop_reason", Value: stop})
			}
		}
		c.choices = appendEdited(c.choices, element, c.inner, edits)
	}
	c.choices = append(c.choices, ']')
	return c.choices
}

// appendIDs appends the numbers of a list of ids. It stops at what is none, and
// ok is false.
func appendIDs(ids []uint32, list []byte) (all []uint32, ok bool) {
	for e := range scanElements(list) {
		id, err := strconv.ParseUint(string(list[e.start:e.end]), 10, 32)
		if err != nil {
			return ids, false
		}
		ids = append(ids, uint32(id))
	}
	return ids, len(list) > 0 && list[0] == '['
}

// AppendIDs appends ids as a JSON list.
func AppendIDs(to []byte, ids []uint32) []byte {
	to = append(to, '[')
	for i, id := range ids {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendUint(to, uint64(id), 10)
	}
	return append(to, ']')
}

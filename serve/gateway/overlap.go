package gateway

import (
	"encoding/json"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/openai"
)

// said is the chunk's text.
func (r *relay) said() string {
	if r.greedy {
		return r.text
	}
	return textIn(&r.chunk)
}

func textIn(c *openai.Chunk) string {
	var text string
	if c.Text != nil {
		_ = json.Unmarshal(c.Text, &text) // what is no text says nothing
	}
	return text
}

// cut leaves of a greedy leg's chunk what the client does not have yet.
func (r *relay) cut() *lifecycle.Trouble {
	c := &r.chunk
	tokens, text, ok := r.again.Repeat(c.Tokens, textIn(c))
	if !ok {
		r.x.cannotResume("another engine's answer is not the same")
		return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Engine: r.call.Engine.Key, Fault: openai.Unavailable("engine %s goes on with another answer", r.call.Engine.Name())}
	}
	c.Tokens, r.text, c.Answered = tokens, text, text != ""
	return nil
}

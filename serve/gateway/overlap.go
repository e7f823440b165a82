package gateway

import (
	"encoding/json"
	"slices"

	"meridian/serve/openai"
)

// overlap is what two engines say of one answer: what the client has from the lost
// one beyond the last point at which another can go on. That point is a token whose text is complete: an engine that
// is given half a character as the end of its prompt says the whole prompt again
// with the other half. When an answer goes on elsewhere, the next
// engine says the overlap once more; the relay compares it and leaves it out.
type overlap struct {
	tokens []uint32
	text   []byte
}

func (o *overlap) isEmpty() bool { return len(o.tokens) == 0 && len(o.text) == 0 }

func (o *overlap) clone() overlap { return overlap{slices.Clone(o.tokens), slices.Clone(o.text)} }

// repeat takes what an engine says, and returns what of it is new. ok is false
// where it says something else than was said before.
func (o *overlap) repeat(tokens []uint32, text string) (newTokens []uint32, newText string, ok bool) {
	n := min(len(tokens), len(o.tokens))
	if !slices.Equal(tokens[:n], o.tokens[:n]) {
		return nil, "", false
	}
	m := min(len(text), len(o.text))
	if string(o.text[:m]) != text[:m] {
		return nil, "", false
	}
	o.tokens, o.text = o.tokens[n:], o.text[m:]
	return tokens[n:], text[m:], true
}

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
func (r *relay) cut() *trouble {
	c := &r.chunk
	tokens, text, ok := r.again.repeat(c.Tokens, textIn(c))
	if !ok {
		r.x.cannotResume("another engine's answer is not the same")
		return &trouble{kind: lost, reached: true, engine: r.call.engine.Key, fault: openai.Unavailable("engine %s goes on with another answer", r.call.engine.Name())}
	}
	c.Tokens, r.text, c.Answered = tokens, text, text != ""
	return nil
}

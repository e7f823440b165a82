package gateway

import (
	"encoding/json"

	"meridian/serve/gateway/lifecycle"
	"meridian/serve/openai"
)

// translated makes a chunk of a completion that goes on after given tokens into
// a chunk of what the client asked for: its ids, its kind, its usage.
func (r *relay) translated() []byte {
	var got openai.Completion
	if json.Unmarshal(r.chunk.Raw(), &got) != nil {
		return r.chunk.Raw() // as unreadable for the client as for us
	}
	x := r.x
	got.Report, got.KVTransfer, got.PromptTokenIDs = nil, nil, nil
	if got.Usage != nil {
		var u openai.Usage
		u.Take(r.chunk.Usage)
		before := max(0, u.PromptTokens-len(x.life.Answer.Prompt)) // tokens of the answer that were sent as prompt
		got.Usage = &openai.Usage{PromptTokens: len(x.life.Answer.Prompt), CompletionTokens: min(u.CompletionTokens+before, openai.MaxUsage), TotalTokens: u.TotalTokens}
		got.Usage.OutputDetails = x.life.Answer.OutputDetails(got.Usage.CompletionTokens)
		x.life.Answer.Usage = *got.Usage
	}
	_ = json.Unmarshal(x.life.Answer.ID, &got.ID)
	_ = json.Unmarshal(x.life.Answer.Created, &got.Created)
	for i := range got.Choices {
		c := &got.Choices[i]
		c.Text, c.PromptTokenIDs, c.TokenIDs = r.text, nil, nil
		if x.life.Request.WantsIDs {
			c.TokenIDs = &r.chunk.Tokens
		}
	}
	var shown any = got
	if x.life.Request.IsChat() {
		shown = asChat(got)
	}
	data, err := json.Marshal(shown)
	if err != nil {
		panic(err) // what was decoded can be encoded
	}
	return data
}

func asChat(c openai.Completion) openai.ChatChunk {
	chat := openai.ChatChunk{ID: c.ID, Object: openai.ObjectChatChunk, Created: c.Created, Model: c.Model, Choices: []openai.DeltaChoice{}, Usage: c.Usage}
	for _, choice := range c.Choices {
		chat.Choices = append(chat.Choices, openai.DeltaChoice{
			Index: choice.Index, Delta: openai.Delta{Content: &choice.Text}, FinishReason: choice.FinishReason, TokenIDs: choice.TokenIDs,
		})
	}
	return chat
}

// ownChunk is a chunk that no engine sent, as the client's others look.
func (x *exchange) ownChunk(choices []openai.CompletionChoice, usage *openai.Usage) []byte {
	own := openai.Completion{Object: openai.ObjectCompletion, Model: x.life.Request.Model, Choices: choices, Usage: usage}
	_ = json.Unmarshal(x.life.Answer.ID, &own.ID)
	_ = json.Unmarshal(x.life.Answer.Created, &own.Created)
	var shown any = own
	if x.life.Request.IsChat() {
		shown = asChat(own)
	}
	data, err := json.Marshal(shown)
	if err != nil {
		panic(err) // texts and numbers
	}
	return data
}

// appendUsage appends the usage that the client wants and that an engine which
// was lost owes, where it is known.
func (x *exchange) appendUsage(events []byte) []byte {
	a := &x.life.Answer
	if !x.life.Request.WantsUsage || a.Told || len(a.Prompt) == 0 {
		return events
	}
	a.Told = true
	a.Usage = openai.Usage{PromptTokens: len(a.Prompt), CompletionTokens: a.Tokens, TotalTokens: len(a.Prompt) + a.Tokens, OutputDetails: a.OutputDetails(a.Tokens)}
	return openai.AppendEvent(events, x.ownChunk([]openai.CompletionChoice{}, &a.Usage))
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

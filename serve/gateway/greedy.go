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
		got.Usage = x.life.TakeUsage(u)
	}
	head(x.life, &got)
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

// head has a chunk look like the first engine's.
func head(l *lifecycle.Life, c *openai.Completion) {
	id, created := l.Head()
	_ = json.Unmarshal(id, &c.ID)
	_ = json.Unmarshal(created, &c.Created)
}

// ownChunk is a chunk that no engine sent, as the client's others look.
func ownChunk(l *lifecycle.Life, choices []openai.CompletionChoice, usage *openai.Usage) []byte {
	own := openai.Completion{Object: openai.ObjectCompletion, Model: l.Request.Model, Choices: choices, Usage: usage}
	head(l, &own)
	var shown any = own
	if l.Request.IsChat() {
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
func appendUsage(events []byte, l *lifecycle.Life) []byte {
	usage := l.OwedUsage()
	if usage == nil {
		return events
	}
	return openai.AppendEvent(events, ownChunk(l, []openai.CompletionChoice{}, usage))
}

// cut leaves of a greedy leg's chunk what the client does not have yet.
func (r *relay) cut() *lifecycle.Trouble {
	text, ok := r.x.life.Repeated(&r.chunk)
	if !ok {
		return &lifecycle.Trouble{Kind: lifecycle.Lost, Reached: true, Engine: r.call.Engine.Key, Fault: openai.Unavailable("engine %s goes on with another answer", r.call.Engine.Name())}
	}
	r.text = text
	return nil
}

package demo

import (
	"context"
	"fmt"
	"strings"

	"meridian/run/cell/openaiclient"
	"meridian/serve/openai"
)

// prompt is one request, which can be sent to any server.
type prompt struct {
	// kind says for people what is special about it.
	kind       string
	completion *openai.CompletionRequest
	chat       *openai.ChatRequest
}

func (p prompt) send(ctx context.Context, c *openaiclient.Client) (*openaiclient.Answer, error) {
	if p.chat != nil {
		return c.Chat(ctx, *p.chat, nil)
	}
	return c.Complete(ctx, *p.completion, nil)
}

const (
	rounds = 10
	// answerTokens is how long answers are; the longest prompts leave room for
	// several.
	answerTokens = 32
	// thoughtTokens is how long scripted thoughts are at least.
	thoughtTokens = 12
)

// load is the same at every call: in each round a short prompt, a long one, one
// that begins like another, and a chat. About half of them are streamed, half
// are sampled, each with a seed of its own.
func load(o Options) []prompt {
	long := o.MaxTokens / 2
	if o.MaxTokens == 0 || long > maxLong {
		long = maxLong
	}
	var prompts []prompt
	for i := range rounds {
		plan := story(i, long)
		prompts = append(prompts,
			o.complete("short", i, fmt.Sprintf("Note %d: the tide turns at", i)),
			o.complete("long", i+1, plan),
			o.complete("shared prefix", i, story(i%3, long*3/4)+fmt.Sprintf(" Question %d: who keeps the light?", i)),
			o.converse(i, plan[:len(plan)/2]),
		)
	}
	return prompts
}

// maxLong is how long the longest prompts are, in characters; a tokenizer of
// bytes makes as many tokens of them.
const maxLong = 640

// story is a text of so many characters, another for each number.
func story(number, length int) string {
	subjects := []string{"The harbour master", "A lamplighter", "The ferry", "An old chart", "The night watch", "A pilot boat", "The bell buoy"}
	acts := []string{"counts the boats", "waits for the fog", "turns towards the pier", "keeps a careful log", "hears the horn", "marks the shoals"}
	var b strings.Builder
	for i := number; b.Len() < length; i += number + 1 {
		fmt.Fprintf(&b, "%s %s at %d past %d. ", subjects[i%len(subjects)], acts[i%len(acts)], i%60, i%12+1)
	}
	return b.String()[:length]
}

// sampling differs with the number: greedy or sampled, streamed or not.
func (o Options) sampling(number int) openai.Sampling {
	tokens, zero, warm, most := answerTokens, 0.0, 0.8, 0.95
	s := openai.Sampling{Model: o.Model, MaxTokens: &tokens, Temperature: &zero, Stream: number%2 == 0, ReturnTokenIDs: true}
	if number%4 >= 2 && !o.Greedy {
		seed := int64(1000 + number)
		s.Temperature, s.TopP, s.Seed = &warm, &most, &seed
	}
	return s
}

func (o Options) complete(kind string, number int, text string) prompt {
	s := o.sampling(number)
	return prompt{kind: describe(kind, s), completion: &openai.CompletionRequest{Sampling: s, Prompt: openai.Prompt{Texts: []string{text}}}}
}

func (o Options) converse(number int, text string) prompt {
	s := o.sampling(number)
	s.Stream = number%5 != 0
	kind := "chat"
	if o.Reasoning {
		thought := thoughtTokens + number
		tokens := thought + answerTokens
		s.ThinkTokens, s.MaxTokens = &thought, &tokens
		kind = "thinking chat"
	}
	messages := []openai.Message{{Role: "system", Content: "You keep a harbour."}, {Role: "user", Content: openai.Content(text)}}
	return prompt{kind: describe(kind, s), chat: &openai.ChatRequest{Sampling: s, Messages: messages}}
}

func describe(kind string, s openai.Sampling) string {
	if *s.Temperature > 0 {
		kind += ", sampled"
	} else {
		kind += ", greedy"
	}
	if s.Stream {
		kind += ", streamed"
	}
	return kind
}

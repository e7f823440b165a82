package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"meridian/serve/openai"
)

// firstTokenLimit is far beyond what an answer takes.
const firstTokenLimit = 2 * time.Minute

// asking keeps its connections, as clients do.
var asking = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}

// Answer is what came of one prompt.
type Answer struct {
	// First and Last are when the first and the last token came.
	First, Last time.Duration
	Tokens      []uint32
	// Cached is how many tokens of the prompt were not computed, as servers say that run
	// with --enable-prompt-tokens-details.
	Cached int
}

// Ask has a prompt answered greedily with so many tokens, as a stream.
func Ask(ctx context.Context, url string, prompt []uint32, tokens int) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, firstTokenLimit)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"model": VLLMModel, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true, "stream": true, "return_token_ids": true,
		"stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		return a, err
	}
	began := time.Now()
	response, err := post(ctx, asking, url+openai.PathCompletions, string(body))
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if err := stream(response.Body, func(chunk *openai.Chunk) error {
		a.hear(chunk, time.Since(began))
		return nil
	}); err != nil {
		return a, err
	}
	if len(a.Tokens) != tokens {
		return a, fmt.Errorf("an answer of %d tokens, not %d", len(a.Tokens), tokens)
	}
	return a, nil
}

// hear takes a chunk of the stream that came at some time.
func (a *Answer) hear(chunk *openai.Chunk, at time.Duration) {
	if chunk.Usage != nil {
		var usage openai.Usage
		usage.Take(chunk.Usage)
		if usage.PromptDetails != nil {
			a.Cached = max(a.Cached, usage.PromptDetails.CachedTokens)
		}
	}
	if len(chunk.Tokens) == 0 {
		return
	}
	if len(a.Tokens) == 0 {
		a.First = at
	}
	a.Last, a.Tokens = at, append(a.Tokens, chunk.Tokens...)
}

package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+openai.PathCompletions, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := asking.Do(request)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return a, fmt.Errorf("%s: %s", response.Status, text)
	}
	for events := openai.NewEventReader(response.Body, 0); ; {
		data, err := events.Next()
		if err != nil {
			return a, err
		}
		if string(data) == openai.Done {
			break
		}
		if err := a.hear(data, time.Since(began)); err != nil {
			return a, err
		}
	}
	if len(a.Tokens) != tokens {
		return a, fmt.Errorf("an answer of %d tokens, not %d", len(a.Tokens), tokens)
	}
	return a, nil
}

// hear takes an event of the stream that came at some time.
func (a *Answer) hear(event []byte, at time.Duration) error {
	var e struct {
		Choices []struct {
			TokenIDs []uint32 `json:"token_ids"`
		} `json:"choices"`
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return err
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return errors.New(string(e.Error))
	}
	a.Cached = max(a.Cached, e.Usage.Details.Cached)
	if len(e.Choices) == 0 || len(e.Choices[0].TokenIDs) == 0 {
		return nil
	}
	if len(a.Tokens) == 0 {
		a.First = at
	}
	a.Last, a.Tokens = at, slices.Concat(a.Tokens, e.Choices[0].TokenIDs)
	return nil
}

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

	"meridian/openai"
)

// firstTokenLimit is far beyond what an answer takes.
const firstTokenLimit = 2 * time.Minute

// asking keeps its connections, as clients do.
var asking = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}

// askFirst has a prompt answered greedily, as a stream, and tells how long the
// first token took.
func askFirst(ctx context.Context, url string, prompt []uint32) (first time.Duration, tokens []uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, firstTokenLimit)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"model": vllmModel, "prompt": prompt, "max_tokens": vllmAnswer, "temperature": 0, "ignore_eos": true, "stream": true, "return_token_ids": true,
	})
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+openai.PathCompletions, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := asking.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return 0, nil, fmt.Errorf("%s: %s", response.Status, text)
	}
	for events := openai.NewEventReader(response.Body, 0); ; {
		data, err := events.Next()
		if err != nil {
			return 0, nil, err
		}
		if string(data) == openai.Done {
			break
		}
		got, err := tokensIn(data)
		if err != nil {
			return 0, nil, err
		}
		if len(tokens) == 0 && len(got) > 0 {
			first = time.Since(began)
		}
		tokens = slices.Concat(tokens, got)
	}
	if len(tokens) != vllmAnswer {
		return 0, nil, fmt.Errorf("an answer of %d tokens, not %d", len(tokens), vllmAnswer)
	}
	return first, tokens, nil
}

func tokensIn(event []byte) ([]uint32, error) {
	var e struct {
		Choices []struct {
			TokenIDs []uint32 `json:"token_ids"`
		} `json:"choices"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, err
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return nil, errors.New(string(e.Error))
	}
	if len(e.Choices) == 0 {
		return nil, nil
	}
	return e.Choices[0].TokenIDs, nil
}

package engine

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"meridian/serve/openai"
)

// What /tokenize tells is what an answer to the same prompt was computed from.
func TestTokenize(t *testing.T) {
	e := join(t, nil, Options{ServedName: "m"})
	s := serve(t, e)
	type told struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
	}
	for _, c := range []struct{ path, body string }{
		{openai.PathCompletions, `{"model":"m","prompt":"hello there"`},
		{openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"hello there"}]`},
		{openai.PathChat, `{"model":"m","messages":[{"role":"user","content":"hello there"}],"add_generation_prompt":false`},
	} {
		var got told
		postJSON(t, s, "/tokenize", c.body+`}`, &got)
		var answer struct {
			Usage   struct{ PromptTokens int } `json:"-"`
			Choices []struct {
				PromptTokenIDs []uint32 `json:"prompt_token_ids"`
			} `json:"choices"`
			PromptTokenIDs []uint32 `json:"prompt_token_ids"`
		}
		postJSON(t, s, c.path, c.body+`,"max_tokens":1,"return_token_ids":true}`, &answer)
		want := answer.PromptTokenIDs
		if want == nil {
			want = answer.Choices[0].PromptTokenIDs
		}
		if len(want) == 0 || !slices.Equal(got.Tokens, want) || got.Count != len(want) || got.MaxModelLen == 0 {
			t.Errorf("%s: %+v, its answer was computed from %v", c.path, got, want)
		}
	}
	var history, whole told
	postJSON(t, s, "/tokenize", `{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}`, &history)
	postJSON(t, s, "/tokenize", `{"messages":[{"role":"user","content":"a"}]}`, &whole)
	if history.Count >= whole.Count || !slices.Equal(history.Tokens, whole.Tokens[:history.Count]) {
		t.Errorf("%v without what begins the answer, %v with it", history.Tokens, whole.Tokens)
	}
	var none told
	postJSON(t, s, "/tokenize", `{"prompt":"","add_special_tokens":false}`, &none)
	if none.Count != 0 || none.Tokens == nil {
		t.Errorf("%+v", none)
	}
	for _, bad := range []string{`{}`, `{"prompt":"a","messages":[{"role":"user","content":"b"}]}`, `{"model":"other","prompt":"a"}`, `{"prompt":3}`, `{"messages":[{"role":"unknown","content":"b"}]}`} {
		response := post(t, s, "/tokenize", bad)
		var problem struct{ Error struct{ Message string } }
		if err := json.NewDecoder(response.Body).Decode(&problem); err != nil || response.StatusCode < http.StatusBadRequest || problem.Error.Message == "" {
			t.Errorf("%s: status %d, %+v, %v", bad, response.StatusCode, problem, err)
		}
	}
}

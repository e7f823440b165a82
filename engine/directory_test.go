package engine

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"meridian/serve/openai"
)

// modelDirectory is a small model as Hugging Face has them: goldens of
// engine/model, with a tokenizer of printable ASCII.
func modelDirectory(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "qwen3-golden")
	if err := os.CopyFS(dir, os.DirFS("model/testdata/golden/qwen3-tied-bf16")); err != nil {
		t.Fatal(err)
	}
	vocabulary := map[string]int{"Ġ": 94, "ab": 95, "Ċ": 96}
	for c := '!'; c <= '~'; c++ {
		vocabulary[string(c)] = int(c - '!')
	}
	file := map[string]any{
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{"a b"}},
	}
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestModelDirectory(t *testing.T) {
	dir := modelDirectory(t)
	e, err := Open(within(t), Options{ID: "hf", Model: dir, Blocks: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	s := serve(t, e)
	var got openai.Completion
	postJSON(t, s, openai.PathCompletions, `{"model":"qwen3-golden","prompt":"c ab","max_tokens":8,"temperature":0,"ignore_eos":true,"return_token_ids":true}`, &got)
	if want := []uint32{'c' - '!', 94, 95}; !slices.Equal(got.Choices[0].PromptTokenIDs, want) || len(*got.Choices[0].TokenIDs) != 8 {
		t.Errorf("%+v, want prompt %v", got.Choices[0], want)
	}
	// Without a template that is known there is no chat, and the error says what there is.
	r := post(t, s, openai.PathChat, `{"messages":[{"role":"user","content":"a"}]}`)
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), openai.PathCompletions) {
		t.Errorf("status %d, %s", r.StatusCode, body)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"no model":      {ID: "x"},
		"no id":         {Model: "tiny"},
		"unknown model": {ID: "x", Model: "huge"},
		"many ranks":    {ID: "x", Model: "tiny", TP: 64},
		"many stages":   {ID: "x", Model: "tiny", PP: 9},
		"layout":        {ID: "x", Model: "tiny", Layout: "XYZ"},
		"role":          {ID: "x", Model: "tiny", Role: "queen"},
		"negative":      {ID: "x", Model: "tiny", MaxRunning: -1},
	} {
		if e, err := Open(within(t), o); err == nil {
			t.Errorf("%s was opened", name)
			_ = e.Close(within(t))
		}
	}
	defaults, err := Options{ID: "x", Model: "tiny"}.withDefaults()
	if err != nil || defaults.MaxRunning != 512 || defaults.ServedName != "tiny" || defaults.Role != RoleBoth {
		t.Errorf("%+v, %v", defaults, err)
	}
}

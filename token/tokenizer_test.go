package token

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const bpe = `{
  "added_tokens": [
    {"id": 200005, "content": "<|channel|>", "special": true},
    {"id": 200008, "content": "<|message|>"},
    {"id": 7, "content": "<think>"},
    {"id": 8, "content": "</think>"},
    {"id": 9, "content": "</think>\n"}
  ],
  "model": {"type": "BPE", "vocab": {"analysis": 35644, "Ġfinal": 2, "Ċ": 198, "don't": 5}, "merges": []}
}`

func TestMarker(t *testing.T) {
	v, err := Parse([]byte(bpe))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want []uint32
	}{
		{"<think>", []uint32{7}},
		{"</think>", []uint32{8}},
		{"</think>\n", []uint32{9}},
		{"</think>\n\n", []uint32{9, 198}},
		{"<|channel|>analysis<|message|>", []uint32{200005, 35644, 200008}},
		{" final", []uint32{2}},
		{"analysis", []uint32{35644}},
		{"<think><think>", []uint32{7, 7}},
	} {
		if got, err := v.Marker(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, %v, want %v", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", "<thought>", "analysi", "analysis analysis", "<|channel|>commentary"} {
		if ids, err := v.Marker(text); !errors.Is(err, ErrNoMarker) {
			t.Errorf("%q: got %v, %v, want ErrNoMarker", text, ids, err)
		}
	}
}

func TestUnigramVocabulary(t *testing.T) {
	v, err := Parse([]byte(`{"model": {"type": "Unigram", "vocab": [["<unk>", 0], ["hello", -1.5]]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := v.Marker("hello"); err != nil || !slices.Equal(ids, []uint32{1}) {
		t.Errorf("got %v, %v", ids, err)
	}
}

func TestRefusedFiles(t *testing.T) {
	for name, text := range map[string]string{
		"empty":             ``,
		"no JSON":           `vocab`,
		"a list":            `[]`,
		"no model":          `{"added_tokens": []}`,
		"no vocab":          `{"model": {}}`,
		"vocab of null":     `{"model": {"vocab": null}}`,
		"vocab of text":     `{"model": {"vocab": "a"}}`,
		"negative id":       `{"model": {"vocab": {"a": -1}}}`,
		"piece of nothing":  `{"model": {"vocab": [[]]}}`,
		"piece of numbers":  `{"model": {"vocab": [[1, 2]]}}`,
		"added without id":  `{"model": {"vocab": {}}, "added_tokens": [{"content": "x"}]}`,
		"added empty":       `{"model": {"vocab": {}}, "added_tokens": [{"id": 1, "content": ""}]}`,
		"added id of text":  `{"model": {"vocab": {}}, "added_tokens": [{"id": "1", "content": "x"}]}`,
		"added id too wide": `{"model": {"vocab": {}}, "added_tokens": [{"id": 4294967296, "content": "x"}]}`,
	} {
		if v, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", name, v)
		}
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if _, err := Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want the path in it", err)
	}
	if err := os.WriteFile(path, []byte(bpe), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(bpe), "</think>\n\n")
	f.Add([]byte(`{"model": {"vocab": [["a", 0]]}}`), "a")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		v, err := Parse(data)
		if err != nil {
			return
		}
		ids, err := v.Marker(text)
		if (err == nil) != (len(ids) > 0) {
			t.Fatalf("%q: %v, %v", text, ids, err)
		}
	})
}

package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const bpeFile = `{
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
	v, err := Parse([]byte(bpeFile))
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

var repeated = regexp.MustCompile(`«(.)\*(\d+)»`)

// TestVerdicts reads the corpus that holds Go and Python together.
func TestVerdicts(t *testing.T) {
	corpus, err := os.ReadFile("../../testdata/token/verdicts.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(corpus)) {
		if strings.HasPrefix(line, "#") || line == "\n" {
			continue
		}
		columns := strings.Split(strings.TrimSuffix(line, "\n"), " | ")
		if len(columns) != 3 {
			t.Fatalf("not three columns: %s", line)
		}
		text := repeated.ReplaceAllStringFunc(columns[1], func(found string) string {
			parts := repeated.FindStringSubmatch(found)
			count, _ := strconv.Atoi(parts[2])
			return strings.Repeat(parts[1], count)
		})
		if got := verdict(t, text, columns[2]); got != columns[2] {
			t.Errorf("%s: got %s, want %s", columns[0], got, columns[2])
		}
	}
}

// verdict writes what Parse makes of text as the corpus does. The marker to
// look up is the one in want.
func verdict(t *testing.T, text, want string) string {
	t.Helper()
	v, err := Parse([]byte(text))
	if err != nil {
		return "refused"
	}
	if want == "refused" {
		return "read"
	}
	var marker string
	if err := json.NewDecoder(strings.NewReader(want)).Decode(&marker); err != nil {
		t.Fatal(err)
	}
	ids, err := v.Marker(marker)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%q %s", marker, strings.ReplaceAll(fmt.Sprint(ids), " ", ", "))
}

func TestBytesThatAreNotUTF8AreRefused(t *testing.T) {
	if _, err := Parse([]byte("{\"model\": {\"vocab\": {\"\xff\": 1}}}")); err == nil {
		t.Error("they were read")
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
	if err := os.WriteFile(path, []byte(bpeFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(bpeFile), "</think>\n\n")
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

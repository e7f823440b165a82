package token

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var trained = []string{"gpt2", "llama3", "qwen", "llama2"}

func open(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tokenizer, err := OpenTokenizer(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

// testdata/make_goldens.py asks Hugging Face's tokenizers.
func TestGoldens(t *testing.T) {
	for _, name := range trained {
		tokenizer := open(t, name)
		file, err := os.Open(filepath.Join("testdata", name+".golden.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		checked := 0
		for ; lines.Scan(); checked++ {
			var want struct {
				Text    string
				IDs     []uint32
				Whole   []uint32
				Decoded string
			}
			if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
				t.Fatal(err)
			}
			if got := tokenizer.Encode(want.Text); !slices.Equal(got, want.IDs) {
				t.Errorf("%s: %q\n got %v\nwant %v", name, want.Text, got, want.IDs)
			}
			if got := tokenizer.EncodeWhole(want.Text); !slices.Equal(got, want.Whole) {
				t.Errorf("%s: whole %q\n got %v\nwant %v", name, want.Text, got, want.Whole)
			}
			if got := tokenizer.Decode(want.IDs); got != want.Decoded {
				t.Errorf("%s: decoded %v\n got %q\nwant %q", name, want.IDs, got, want.Decoded)
			}
		}
		if checked < 30 {
			t.Errorf("%s: %d goldens, want at least 30", name, checked)
		}
	}
}

func TestBytesAreTokens(t *testing.T) {
	tokenizer := Bytes()
	ids := tokenizer.Encode("<|im_start|>user\né<|im_end|><think>x</think><|nope|>")
	want := append([]uint32{ImStart}, 'u', 's', 'e', 'r', '\n', 0xC3, 0xA9, ImEnd, ThinkStart, 'x', ThinkEnd)
	for _, c := range []byte("<|nope|>") {
		want = append(want, uint32(c))
	}
	if !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	if id, found := tokenizer.ID("</think>"); !found || id != ThinkEnd {
		t.Errorf("</think> is %d, %v", id, found)
	}
	if tokenizer.Size() != 262 || !tokenizer.Special(EOS) || tokenizer.Special(ThinkEnd) || tokenizer.Special('a') {
		t.Errorf("size %d", tokenizer.Size())
	}
}

// What a stream has handed out is valid UTF-8 at any moment, and in the end it
// is what Decode says.
func streamed(t *testing.T, tokenizer *Tokenizer, ids []uint32) string {
	t.Helper()
	s := tokenizer.Stream(false)
	var text strings.Builder
	for _, id := range ids {
		piece := s.Append(id)
		if !utf8.ValidString(piece) {
			t.Fatalf("half a character: %q", piece)
		}
		text.WriteString(piece)
	}
	text.WriteString(s.Flush())
	return text.String()
}

func TestStreamHoldsHalfCharactersBack(t *testing.T) {
	tokenizer := Bytes()
	s := tokenizer.Stream(true)
	var pieces []string
	for _, c := range []byte("a🙂é\xE2\x82b\xFF") {
		pieces = append(pieces, s.Append(uint32(c)))
	}
	pieces = append(pieces, s.Append(EOS), s.Append(0xF0), s.Append(0x9F), s.Flush())
	want := []string{"a", "", "", "", "🙂", "", "é", "", "", "\uFFFDb", "\uFFFD", "", "", "", "\uFFFD"}
	if !slices.Equal(pieces, want) {
		t.Errorf("got %q, want %q", pieces, want)
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, text := range []string{"", " a  b\n\n", "it's 12345 🙂", "<|im_end|><think>", "\xff\xfe", "é e\u0301"} {
		f.Add(text)
	}
	exact := []*Tokenizer{Bytes(), open(f, "gpt2"), open(f, "llama3")}
	f.Fuzz(func(t *testing.T, text string) {
		for i, tokenizer := range exact {
			if i > 0 && (strings.Contains(text, "<mask>") || strings.Contains(text, "<special>")) {
				continue // these swallow white space
			}
			ids := tokenizer.Encode(text)
			var raw []byte
			for _, id := range ids {
				raw = append(raw, tokenizer.Text(id)...)
			}
			if string(raw) != text {
				t.Fatalf("tokenizer %d: %q became %q", i, text, raw)
			}
			decoded := streamed(t, tokenizer, ids)
			if decoded != tokenizer.Decode(ids) || utf8.ValidString(text) && decoded != text {
				t.Fatalf("tokenizer %d: %q was decoded as %q", i, text, decoded)
			}
		}
	})
}

func FuzzParseTokenizer(f *testing.F) {
	for _, name := range trained {
		data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "a b  c")
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tokenizer, err := ParseTokenizer(data)
		if err != nil {
			return
		}
		tokenizer.Decode(tokenizer.EncodeWhole(text))
	})
}

func TestUnsupportedIsNamed(t *testing.T) {
	const model = `"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}`
	for name, c := range map[string]struct{ file, says string }{
		"unigram":        {`{"model": {"type": "Unigram", "vocab": [["a", 0]]}}`, "Unigram"},
		"normalizer":     {`{"normalizer": {"type": "BertNormalizer"}, ` + model + `}`, "BertNormalizer"},
		"pre-tokenizer":  {`{"pre_tokenizer": {"type": "Whitespace"}, ` + model + `}`, "Whitespace"},
		"look-behind":    {`{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?<!a)b"}, "behavior": "Isolated"}, ` + model + `}`, "look-around"},
		"look-ahead":     {`{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)"}, "behavior": "Isolated"}, ` + model + `}`, "look-ahead"},
		"behavior":       {`{"pre_tokenizer": {"type": "Split", "pattern": {"String": "b"}, "behavior": "Odd"}, ` + model + `}`, "Odd"},
		"post-processor": {`{"post_processor": {"type": "RobertaProcessing"}, ` + model + `}`, "RobertaProcessing"},
		"decoder":        {`{"decoder": {"type": "WordPiece"}, ` + model + `}`, "WordPiece"},
		"suffix":         {`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"}}`, "end_of_word_suffix"},
	} {
		if _, err := ParseTokenizer([]byte(c.file)); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want ErrUnsupported that names %s", name, err, c.says)
		}
	}
	for name, file := range map[string]string{
		"no JSON": "x", "empty": "{}", "merge of nothing": `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}`,
		"half a merge": `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}`,
		"far id":       `{"model": {"type": "BPE", "vocab": {"a": 4000000000}, "merges": []}}`,
		"no bytes":     `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "byte_fallback": true}}`,
	} {
		if _, err := ParseTokenizer([]byte(file)); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func TestSplitBehaviors(t *testing.T) {
	p, err := newPattern("-")
	if err != nil {
		t.Fatal(err)
	}
	// As Hugging Face's tokenizers documents them.
	for behavior, want := range map[string][]string{
		"Isolated":           {"the", "-", "final", "-", "-", "countdown"},
		"Removed":            {"the", "final", "countdown"},
		"MergedWithPrevious": {"the-", "final-", "-", "countdown"},
		"MergedWithNext":     {"the", "-final", "-", "-countdown"},
		"Contiguous":         {"the", "-", "final", "--", "countdown"},
	} {
		got := patternSplit{pattern: p, behavior: behavior}.split([]string{"the-final--countdown"}, true)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", behavior, got, want)
		}
	}
	got := patternSplit{pattern: p, behavior: "Removed", invert: true}.split([]string{"a-b--"}, true)
	if !slices.Equal(got, []string{"-", "-", "-"}) {
		t.Errorf("inverted: got %q", got)
	}
}

func TestMetaspace(t *testing.T) {
	for name, c := range map[string]struct {
		split   metaspaceSplit
		atStart bool
		want    []string
	}{
		"always":       {metaspaceSplit{"▁", "always", true}, false, []string{"▁a", "▁", "▁b"}},
		"first":        {metaspaceSplit{"▁", "first", true}, true, []string{"▁a", "▁", "▁b"}},
		"first, later": {metaspaceSplit{"▁", "first", true}, false, []string{"a", "▁", "▁b"}},
		"never, whole": {metaspaceSplit{"▁", "never", false}, true, []string{"a▁▁b"}},
	} {
		if got := c.split.split([]string{"a  b"}, c.atStart); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// A long text without a break costs no more than a long text.
func TestLongPiece(t *testing.T) {
	tokenizer := open(t, "gpt2")
	text := strings.Repeat("the", 200_000)
	if got := tokenizer.Decode(tokenizer.Encode(text)); got != text {
		t.Error("it came back different")
	}
}

func TestChatTemplates(t *testing.T) {
	talk := []Message{{"system", "Be brief."}, {"user", " hi \n"}}
	for name, c := range map[string]struct{ file, content, want string }{
		"chatml": {"tokenizer_config.json", `{"chat_template": "{{'<|im_start|>' + m.role}}…<|im_end|>"}`, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n hi \n<|im_end|>\n<|im_start|>assistant\n"},
		"llama3": {"chat_template.jinja", `<|start_header_id|>…<|eot_id|>`, "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		"named":  {"tokenizer_config.json", `{"chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": "<|im_start|><|im_end|>"}]}`, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n hi \n<|im_end|>\n<|im_start|>assistant\n"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		template, err := OpenChatTemplate(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.Render(talk); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	for name, content := range map[string]string{"unknown": `{"chat_template": "[INST]"}`, "none": `{}`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenChatTemplate(dir); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// What a gateway has computed ahead, messages with the answer and a user who says
// nothing yet, has the tokens with which the next turn begins: all of the history,
// whatever the user says then.
func TestHistoryIsAPrefixOfTheNextTurn(t *testing.T) {
	for name, c := range map[string]struct {
		tokenizer *Tokenizer
		template  ChatTemplate
	}{"built in": {Bytes(), ChatML()}, "qwen": {open(t, "qwen"), chatML}, "llama3": {open(t, "llama3"), llama3}} {
		t.Run(name, func(t *testing.T) {
			texts := []string{"Be brief.", " hi \n", "It is\n\n42.", "\n\nand then?", "…\u00a0ß", "a", ""}
			for i := range texts {
				at := func(k int) string { return texts[(i+k)%len(texts)] }
				answered := []Message{{"system", at(0)}, {"user", at(1)}, {"assistant", at(2)}}
				history := c.tokenizer.Encode(c.template.History(answered))
				ahead := c.tokenizer.Encode(c.template.History(append(slices.Clone(answered), Message{"user", ""})))
				next := c.tokenizer.Encode(c.template.Render(append(slices.Clone(answered), Message{"user", at(3)})))
				if len(next) < len(history) || !slices.Equal(next[:len(history)], history) {
					t.Errorf("%q: the next turn does not begin with the history", texts[i:])
				}
				if !slices.Equal(ahead[:len(history)], history) {
					t.Errorf("%q: what is computed ahead does not begin with the history", texts[i:])
				}
			}
		})
	}
}

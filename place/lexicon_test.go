package place

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tokenized stands in for a tokenizer: a token for every 4 bytes.
func tokenized(text []byte) []uint32 {
	tokens := make([]uint32, len(text)/4)
	for i := range tokens {
		tokens[i] = uint32(text[4*i])<<8 | uint32(i)
	}
	return tokens
}

func TestLexicon(t *testing.T) {
	l := NewLexicon(1000)
	text := bytes.Repeat([]byte("abcdefgh"), 128) // 1024 bytes
	p, _ := OfText("m", text)
	if tokens, _ := l.Recall(p); tokens != nil {
		t.Errorf("%d tokens of a text that nobody has seen", len(tokens))
	}
	l.Learn(p, tokenized(text))
	if tokens, whole := l.Recall(p); !whole || !slices.Equal(tokens, tokenized(text)) {
		t.Errorf("the same text is %d tokens, %v", len(tokens), whole)
	}
	longer, _ := OfText("m", append(slices.Clone(text), "another turn"...))
	if tokens, whole := l.Recall(longer); whole || !slices.Equal(tokens, tokenized(text)) {
		t.Errorf("a longer text begins with %d tokens, %v", len(tokens), whole)
	}
	branch := slices.Clone(text)
	branch[600] = 'X'
	other, _ := OfText("m", branch)
	if tokens, whole := l.Recall(other); whole || !slices.Equal(tokens, tokenized(text[:512])) {
		t.Errorf("a text that differs after 600 bytes begins with %d tokens, %v", len(tokens), whole)
	}
	elsewhere, _ := OfText("n", text)
	if tokens, _ := l.Recall(elsewhere); tokens != nil {
		t.Error("a text of another model was recalled")
	}
}

func TestLexiconIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 400).Draw(t, "limit")
		l := NewLexicon(limit)
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			text := bytes.Repeat([]byte{byte(rapid.IntRange('a', 'e').Draw(t, "letter"))}, rapid.IntRange(0, 1000).Draw(t, "bytes"))
			p, _ := OfText("m", text)
			l.Learn(p, tokenized(text))
			if l.Size() > limit {
				t.Fatalf("%d tokens are remembered of %d", l.Size(), limit)
			}
			tokens, whole := l.Recall(p)
			if n := len(text) / 4; n > 0 && n <= limit && (!whole || !slices.Equal(tokens, tokenized(text))) {
				t.Fatalf("%d tokens of a text of %d are recalled, %v", len(tokens), n, whole)
			}
		}
		for len(l.order) > 0 {
			l.forgetOldest()
		}
		if l.size != 0 || len(l.byHash) != 0 || len(l.byWhole) != 0 {
			t.Fatalf("%d tokens, %d chunks, %d texts are left of nothing", l.size, len(l.byHash), len(l.byWhole))
		}
	})
}

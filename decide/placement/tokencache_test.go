package placement

import (
	"bytes"
	"fmt"
	"runtime"
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
	l := NewLexicon(100_000)
	text := bytes.Repeat([]byte("abcdefgh"), 128) // 1024 bytes
	p, _ := OfText("m", text)
	if tokens, _ := l.Recall(p); tokens != nil {
		t.Errorf("%d tokens of a text that was never learnt", len(tokens))
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
		limit := rapid.IntRange(1, 4000).Draw(t, "limit")
		l := NewLexicon(limit)
		for range rapid.IntRange(0, 30).Draw(t, "n") {
			text := bytes.Repeat([]byte{byte(rapid.IntRange('a', 'e').Draw(t, "letter"))}, rapid.IntRange(0, 1000).Draw(t, "bytes"))
			p, _ := OfText("m", text)
			l.Learn(p, tokenized(text))
			if l.Size() > limit {
				t.Fatalf("%d bytes are taken of %d", l.Size(), limit)
			}
			tokens, whole := l.Recall(p)
			n, bytes := len(text)/4, (&learned{p, tokenized(text)}).bytes()
			if n > 0 && bytes <= limit && (!whole || !slices.Equal(tokens, tokenized(text))) {
				t.Fatalf("%d tokens of a text of %d are recalled, %v", len(tokens), n, whole)
			}
		}
		for len(l.order) > 0 {
			l.forgetOldest()
		}
		if l.size != 0 || len(l.byHash) != 0 || len(l.byWhole) != 0 {
			t.Fatalf("%d bytes, %d chunks, %d texts are left of nothing", l.size, len(l.byHash), len(l.byWhole))
		}
	})
}

// However short texts are, and however few tokens an engine says that they come to, the
// memory that is taken is about what it says.
func TestLexiconTakesWhatItSays(t *testing.T) {
	const limit = 8 << 20
	for name, text := range map[string]func(i int) []byte{
		"short texts": func(i int) []byte { return fmt.Append(nil, i) },
		"long texts":  func(i int) []byte { return append(bytes.Repeat([]byte("x"), 20*textChunk), fmt.Append(nil, i)...) },
		"many chunks": func(i int) []byte { return bytes.Repeat(fmt.Append(nil, i, " "), 20*textChunk) },
	} {
		t.Run(name, func(t *testing.T) {
			held := func() uint64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			before := held()
			l := NewLexicon(limit)
			for i := range 60_000 {
				p, _ := OfText("m", text(i))
				l.Learn(p, make([]uint32, 1, 4096)) // of which one token is used
				if i > 2000 && len(p.Hashes) > 100 {
					break
				}
			}
			if took := int64(held() - before); took > 2*limit || l.Size() > limit {
				t.Errorf("%d bytes are taken, %d are counted, the limit is %d", took, l.Size(), limit)
			}
			runtime.KeepAlive(l)
		})
	}
}

// Two hashes that are equal by a client's design take nothing down.
func TestLexiconSurvivesEqualHashes(t *testing.T) {
	l := NewLexicon(1 << 20)
	short, _ := OfText("m", bytes.Repeat([]byte("a"), textChunk))
	l.Learn(short, []uint32{1, 2, 3})
	forged := Prefix{Hashes: []uint64{1, 2, 3, short.Hashes[0]}, Bytes: 4 * textChunk}
	if tokens, whole := l.Recall(forged); whole || len(tokens) > 3 {
		t.Errorf("%d tokens, %v", len(tokens), whole)
	}
}

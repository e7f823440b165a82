// Package token reads the tokenizers that models ship. Today it knows the
// vocabulary of a Hugging Face tokenizer.json, which is enough to turn a
// model's think markers into token ids; it does not yet split running text.
//
//	tokenizer.json ── Open ──► Vocabulary ── Marker("</think>") ──► [151668]
package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// ErrNoMarker means that a text is not made of whole tokens of a vocabulary.
var ErrNoMarker = errors.New("token: not in the vocabulary")

// maxFileBytes is several times the largest tokenizer.json in use.
const maxFileBytes = 256 << 20

// Vocabulary is the tokens of one model.
type Vocabulary struct {
	added map[string]uint32 // matched in raw text, before anything else
	// addedLongestFirst lists the texts in added; where one starts with
	// another, the longer one wins.
	addedLongestFirst []string
	base              map[string]uint32 // in the model's own spelling
}

// Open reads a tokenizer.json.
func Open(path string) (*Vocabulary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("token: %s is larger than %d bytes", path, maxFileBytes)
	}
	v, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("token: %s: %w", path, err)
	}
	return v, nil
}

// Parse reads the text of a tokenizer.json.
func Parse(data []byte) (*Vocabulary, error) {
	var file struct {
		Added []struct {
			ID      *uint32 `json:"id"`
			Content string  `json:"content"`
		} `json:"added_tokens"`
		Model *struct {
			Vocab json.RawMessage `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if file.Model == nil {
		return nil, errors.New(`not a tokenizer.json: it has no "model"`)
	}
	base, err := parseVocab(file.Model.Vocab)
	if err != nil {
		return nil, err
	}
	v := &Vocabulary{added: make(map[string]uint32), base: base}
	for i, t := range file.Added {
		if t.ID == nil || t.Content == "" {
			return nil, fmt.Errorf("added token %d lacks an id or a content", i)
		}
		v.added[t.Content] = *t.ID
		v.addedLongestFirst = append(v.addedLongestFirst, t.Content)
	}
	slices.SortFunc(v.addedLongestFirst, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return v, nil
}

// parseVocab reads the two shapes a vocabulary comes in: {"text": id} of BPE
// and WordPiece, and [["text", score], …] of Unigram, where the place is the id.
func parseVocab(raw json.RawMessage) (map[string]uint32, error) {
	var byText map[string]uint32
	if err := json.Unmarshal(raw, &byText); err == nil && byText != nil {
		return byText, nil
	}
	var byPlace [][]json.RawMessage
	if err := json.Unmarshal(raw, &byPlace); err != nil || byPlace == nil {
		return nil, errors.New(`"model.vocab" is neither a map of ids nor a list of pieces`)
	}
	byText = make(map[string]uint32, len(byPlace))
	for i, piece := range byPlace {
		var text string
		if len(piece) == 0 || json.Unmarshal(piece[0], &text) != nil {
			return nil, fmt.Errorf(`"model.vocab" entry %d is not [text, score]`, i)
		}
		byText[text] = uint32(i)
	}
	return byText, nil
}

// Marker returns the ids that text is made of: added tokens, and between them
// whole vocabulary entries, as in "<|channel|>analysis<|message|>". Text that
// only a tokenizer's merges could split is refused, because an id sequence that
// is merely plausible would never match what the model emits.
func (v *Vocabulary) Marker(text string) ([]uint32, error) {
	if text == "" {
		return nil, fmt.Errorf("%w: the text is empty", ErrNoMarker)
	}
	var ids []uint32
	for rest := text; rest != ""; {
		at, token := v.nextAdded(rest)
		if plain := rest[:at]; plain != "" {
			id, known := v.base[byteLevel(plain)]
			if !known {
				return nil, fmt.Errorf("%w: %q is not one token", ErrNoMarker, plain)
			}
			ids = append(ids, id)
		}
		if token != "" {
			ids = append(ids, v.added[token])
		}
		rest = rest[at+len(token):]
	}
	return ids, nil
}

// nextAdded finds the first added token in text, or the end of text.
func (v *Vocabulary) nextAdded(text string) (at int, token string) {
	at = len(text)
	for _, candidate := range v.addedLongestFirst {
		if i := strings.Index(text, candidate); i >= 0 && i < at {
			at, token = i, candidate
		}
	}
	return at, token
}

// byteLevel spells text as byte-level BPE vocabularies do: every byte is one
// printable rune, so that a space is Ġ and a newline is Ċ. Printable ASCII stays
// itself, so plain words read the same in every kind of vocabulary.
func byteLevel(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		b.WriteRune(byteRunes[c])
	}
	return b.String()
}

var byteRunes = func() (runes [256]rune) {
	next := rune(256)
	for c := range runes {
		switch {
		case c >= '!' && c <= '~', c >= 0xA1 && c <= 0xAC, c >= 0xAE:
			runes[c] = rune(c)
		default:
			runes[c] = next
			next++
		}
	}
	return runes
}()

package token

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrNoMarker means that a text is not made of whole tokens of a vocabulary.
var ErrNoMarker = errors.New("token: not in the vocabulary")

// maxFileBytes is several times the largest tokenizer.json in use.
const maxFileBytes = 256 << 20

// Vocabulary is the tokens of one model.
type Vocabulary struct {
	added map[string]tokenID // matched in raw text, before anything else
	// addedLongestFirst lists the texts in added; where one starts with
	// another, the longer one wins.
	addedLongestFirst []string
	base              map[string]tokenID // in the model's own spelling
}

type tokenID uint32

// UnmarshalJSON takes nothing but digits: no null, no sign, no fraction.
func (id *tokenID) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseUint(string(data), 10, 32)
	*id = tokenID(n)
	return err
}

// Open reads the vocabulary of a tokenizer.json.
func Open(path string) (*Vocabulary, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	v, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("token: %s: %w", path, err)
	}
	return v, nil
}

func readFile(path string) ([]byte, error) {
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
	return data, nil
}

// Parse reads the text of a tokenizer.json. Names are taken as they are
// written, and of two with one name the last counts: maps do that, where the
// fields of a struct would also take "MODEL". Python's reader, with which the
// corpus in testdata/token holds this one together, does the same.
func Parse(data []byte) (*Vocabulary, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not a tokenizer.json: it is not UTF-8")
	}
	if nesting(data) > maxNesting {
		return nil, fmt.Errorf("not a tokenizer.json: it is nested deeper than %d", maxNesting)
	}
	var file, model map[string]json.RawMessage
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	if json.Unmarshal(file["model"], &model) != nil || model == nil {
		return nil, errors.New(`not a tokenizer.json: it has no "model"`)
	}
	v := &Vocabulary{}
	var err error
	if v.base, err = parseVocab(model["vocab"]); err != nil {
		return nil, err
	}
	if v.added, err = parseAdded(file["added_tokens"]); err != nil {
		return nil, err
	}
	v.addedLongestFirst = slices.SortedFunc(maps.Keys(v.added), func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	return v, nil
}

// maxNesting is many times what a tokenizer.json has.
const maxNesting = 100

// nesting is how deep the lists and objects of a JSON text lie in one another.
func nesting(data []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// parseAdded reads the list of added tokens, which may be missing.
func parseAdded(raw json.RawMessage) (map[string]tokenID, error) {
	var tokens []map[string]json.RawMessage
	if raw != nil {
		if err := json.Unmarshal(raw, &tokens); err != nil {
			return nil, fmt.Errorf(`"added_tokens" is no list of tokens: %w`, err)
		}
	}
	added := make(map[string]tokenID, len(tokens))
	for i, t := range tokens {
		var id tokenID
		var content string
		if json.Unmarshal(t["id"], &id) != nil || json.Unmarshal(t["content"], &content) != nil || content == "" {
			return nil, fmt.Errorf("added token %d lacks an id or a content", i)
		}
		added[content] = id
	}
	return added, nil
}

// parseVocab reads the two shapes a vocabulary comes in: {"text": id} of BPE
// and WordPiece, and [["text", score], …] of Unigram, where the place is the id.
func parseVocab(raw json.RawMessage) (map[string]tokenID, error) {
	var byText map[string]tokenID
	if err := json.Unmarshal(raw, &byText); err == nil && byText != nil {
		return byText, nil
	}
	var byPlace [][]json.RawMessage
	if err := json.Unmarshal(raw, &byPlace); err != nil || byPlace == nil {
		return nil, errors.New(`"model.vocab" is neither a map of ids nor a list of pieces`)
	}
	byText = make(map[string]tokenID, len(byPlace))
	for i, piece := range byPlace {
		var text *string
		if len(piece) == 0 || json.Unmarshal(piece[0], &text) != nil || text == nil {
			return nil, fmt.Errorf(`"model.vocab" entry %d is not [text, score]`, i)
		}
		byText[*text] = tokenID(i)
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
			ids = append(ids, uint32(id))
		}
		if token != "" {
			ids = append(ids, uint32(v.added[token]))
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

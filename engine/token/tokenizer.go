// Package token reads the tokenizers that models ship, and has one of its own.
//
//	tokenizer.json ── Open ──► Vocabulary ── Marker("</think>") ──► [151668]
//	       │
//	       └── OpenTokenizer ──► Tokenizer ── Encode ──► ids ── Decode ──► text
//	                  Bytes ───────▲                       └─── Stream ──► text, as it comes
//
// A Tokenizer works in stages, each of which a tokenizer.json may leave out:
//
//	text ── added tokens ──► sections ── normalizer ──► pre-tokenizer ──► pieces ── merges ──► ids
//
// Byte-pair encoding is what it knows, with byte-level and with Llama-2-style
// vocabularies. A file that wants something else is refused with an error that
// names it: ids that are merely plausible would be a different prompt.
package token

import (
	"errors"
	"strings"
)

// ErrUnsupported means that a tokenizer.json asks for something that this
// package does not do.
var ErrUnsupported = errors.New("token: not supported")

// Tokenizer turns text into token ids and back. It does not change and may be
// used from several goroutines.
type Tokenizer struct {
	raw        scanner // added tokens that are found in text as it is written
	normalized scanner // added tokens that are found in normalized text
	normalize  []func(string) string
	split      []splitter
	merges     bpe
	first      []uint32 // what the post-processor puts before a text
	last       []uint32 // and after it
	texts      [][]byte // by id: what a token stands for; nil where there is none
	special    map[uint32]bool
	// stripFirst: a vocabulary that marks words by a space before them has one
	// too many at the beginning of a text.
	stripFirst bool
}

// Encode returns the ids of text. Added tokens within it, such as <|im_end|>,
// become themselves, as they do with the tokenizers that models are trained
// with: who lets strangers write a prompt and wants to keep them out filters
// before.
func (t *Tokenizer) Encode(text string) []uint32 {
	var ids []uint32
	begin := 0
	t.raw.scan(text, func(section string, found *addedToken) {
		ids = t.encodeSection(ids, section, begin == 0)
		begin += len(section)
		if found != nil {
			ids = append(ids, found.id)
			begin++
		}
	})
	return ids
}

// EncodeWhole is Encode with what the tokenizer puts around a text, such as the
// token that begins a sequence.
func (t *Tokenizer) EncodeWhole(text string) []uint32 {
	ids := append([]uint32(nil), t.first...)
	ids = append(ids, t.Encode(text)...)
	return append(ids, t.last...)
}

// encodeSection appends the ids of text between raw added tokens. atStart says
// whether it begins the whole text.
func (t *Tokenizer) encodeSection(ids []uint32, text string, atStart bool) []uint32 {
	if text == "" {
		return ids
	}
	for _, change := range t.normalize {
		text = change(text)
	}
	t.normalized.scan(text, func(section string, found *addedToken) {
		if section != "" {
			pieces := []string{section}
			for _, s := range t.split {
				pieces = s.split(pieces, atStart)
			}
			for _, piece := range pieces {
				ids = t.merges.encode(ids, piece)
			}
		}
		if found != nil {
			ids = append(ids, found.id)
		}
		atStart = false
	})
	return ids
}

// Size is one more than the greatest id.
func (t *Tokenizer) Size() int { return len(t.texts) }

// ID finds a token by its text; only added tokens and whole entries of the
// vocabulary have one.
func (t *Tokenizer) ID(text string) (uint32, bool) {
	for _, s := range []*scanner{&t.raw, &t.normalized} {
		if added := s.byText(text); added != nil {
			return added.id, true
		}
	}
	id, found := t.merges.ids[text]
	return id, found
}

// Text is what a token stands for; it may be half a character. It belongs to
// the tokenizer. An id without a token has none.
func (t *Tokenizer) Text(id uint32) []byte {
	if int(id) >= len(t.texts) {
		return nil
	}
	return t.texts[id]
}

// Special reports whether a token structures a sequence and is no text, as the
// one that ends it.
func (t *Tokenizer) Special(id uint32) bool { return t.special[id] }

// Decode returns the text of ids, special tokens as they are written. Bytes
// that are no UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []uint32) string {
	s := t.Stream(false)
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(s.Append(id))
	}
	text.WriteString(s.Flush())
	if t.stripFirst {
		return strings.TrimPrefix(text.String(), " ")
	}
	return text.String()
}

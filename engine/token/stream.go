package token

import (
	"strings"
	"unicode/utf8"
)

// Stream decodes ids as they come. It never hands out half a character: bytes
// that may still become one wait for those that follow.
type Stream struct {
	tokenizer   *Tokenizer
	skipSpecial bool
	pending     []byte
}

// Stream begins a stream of ids that goes on with a text. Where skipSpecial is
// set, special tokens have no text.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	return &Stream{tokenizer: t, skipSpecial: skipSpecial}
}

// Append takes the next id and returns the text that is certain by now.
func (s *Stream) Append(id uint32) string {
	if s.skipSpecial && s.tokenizer.Special(id) {
		return ""
	}
	text := s.tokenizer.Text(id)
	if len(s.pending) == 0 && utf8.Valid(text) {
		return string(text)
	}
	s.pending = append(s.pending, text...)
	var out strings.Builder
	for utf8.FullRune(s.pending) && len(s.pending) > 0 {
		r, size := utf8.DecodeRune(s.pending)
		if r == utf8.RuneError && size == 1 {
			size = brokenPrefix(s.pending)
		}
		out.WriteRune(r)
		s.pending = s.pending[size:]
	}
	return out.String()
}

// Flush ends the stream: what still waits will not become a character.
func (s *Stream) Flush() string {
	if len(s.pending) == 0 {
		return ""
	}
	s.pending = nil
	return string(utf8.RuneError)
}

// brokenPrefix is how many bytes one U+FFFD stands for: as many as were a
// character's beginning until the one that broke it, as the Unicode standard
// recommends and other decoders do.
func brokenPrefix(b []byte) int {
	size := 1
	for size < len(b) && !utf8.FullRune(b[:size]) {
		size++
	}
	if size > 1 && utf8.FullRune(b[:size]) {
		size--
	}
	return size
}

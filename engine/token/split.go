package token

import (
	"strings"
)

// splitter is one step of a pre-tokenizer: it cuts pieces into smaller ones and
// spells them as the vocabulary does. atStart says whether the first piece
// begins the whole text.
type splitter interface {
	split(pieces []string, atStart bool) []string
}

// byteLevelSplit spells bytes as printable runes, after it has cut words apart
// where it has a pattern.
type byteLevelSplit struct {
	words       *pattern
	spaceBefore bool // a piece that begins with no space gets one
}

// gpt2Words is what byte-level pre-tokenizers cut by, since GPT-2.
const gpt2Words = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

func (s byteLevelSplit) split(pieces []string, _ bool) []string {
	var out []string
	for _, piece := range pieces {
		if s.spaceBefore && !strings.HasPrefix(piece, " ") {
			piece = " " + piece
		}
		if s.words == nil {
			out = append(out, byteLevel(piece))
			continue
		}
		for _, w := range s.words.spans(piece) {
			out = append(out, byteLevel(piece[w.start:w.end]))
		}
	}
	return out
}

// patternSplit cuts by a pattern. behavior says what becomes of the matches.
type patternSplit struct {
	pattern  pattern
	behavior string
	invert   bool // what matches is between, and what is between matches
}

var behaviors = []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

func (s patternSplit) split(pieces []string, _ bool) []string {
	var out []string
	for _, piece := range pieces {
		spans := s.pattern.spans(piece)
		if s.invert {
			for i := range spans {
				spans[i].matched = !spans[i].matched
			}
		}
		for _, w := range arrange(spans, s.behavior) {
			out = append(out, piece[w.start:w.end])
		}
	}
	return out
}

// arrange keeps, drops or joins matches.
func arrange(spans []span, behavior string) []span {
	var out []span
	for i, w := range spans {
		previous := i > 0 && spans[i-1].matched
		switch behavior {
		case "Removed":
			if w.matched {
				continue
			}
		case "MergedWithPrevious":
			if w.matched && !previous && len(out) > 0 {
				out[len(out)-1].end = w.end
				continue
			}
		case "MergedWithNext":
			// Of several matches in a row the last goes with what follows.
			if !w.matched && previous && len(out) > 0 {
				out[len(out)-1].end = w.end
				continue
			}
		case "Contiguous":
			if len(out) > 0 && previous == w.matched {
				out[len(out)-1].end = w.end
				continue
			}
		}
		out = append(out, w)
	}
	return out
}

// metaspaceSplit spells spaces as a visible rune and cuts before each.
type metaspaceSplit struct {
	replacement string
	prepend     string // always, first or never
	cut         bool
}

func (s metaspaceSplit) split(pieces []string, atStart bool) []string {
	var out []string
	for i, piece := range pieces {
		piece = strings.ReplaceAll(piece, " ", s.replacement)
		if s.prepend == "always" || s.prepend == "first" && atStart && i == 0 {
			if !strings.HasPrefix(piece, s.replacement) {
				piece = s.replacement + piece
			}
		}
		if !s.cut {
			out = append(out, piece)
			continue
		}
		for piece != "" {
			end := strings.Index(piece[1:], s.replacement) + 1
			if end == 0 {
				end = len(piece)
			}
			out = append(out, piece[:end])
			piece = piece[end:]
		}
	}
	return out
}

package token

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is found in text as a whole, before anything else.
type addedToken struct {
	id      uint32
	text    string
	special bool
	// It takes the white space on its left or right with it.
	stripLeft, stripRight bool
	// It counts only where it is a word of its own.
	singleWord bool
}

// scanner finds added tokens in text: the leftmost first, of several at one
// place the longest.
type scanner struct {
	byFirst [256][]*addedToken // by first byte, longest first
	tokens  int
}

func newScanner(tokens []addedToken) scanner {
	var s scanner
	for i := range tokens {
		t := &tokens[i]
		s.byFirst[t.text[0]] = append(s.byFirst[t.text[0]], t)
		s.tokens++
	}
	for _, list := range s.byFirst {
		slices.SortStableFunc(list, func(a, b *addedToken) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	return s
}

func (s *scanner) byText(text string) *addedToken {
	if text == "" {
		return nil
	}
	for _, t := range s.byFirst[text[0]] {
		if t.text == text {
			return t
		}
	}
	return nil
}

// scan calls yield for each section of text and the token that ends it; the
// last section has none.
func (s *scanner) scan(text string, yield func(section string, found *addedToken)) {
	begin := 0
	for at := 0; s.tokens > 0 && at < len(text); {
		t := s.at(text, at)
		if t == nil {
			at++
			continue
		}
		start, end := at, at+len(t.text)
		if t.stripLeft {
			start = begin + len(strings.TrimRightFunc(text[begin:start], unicode.IsSpace))
		}
		if t.stripRight {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		yield(text[begin:start], t)
		begin, at = end, end
	}
	if begin < len(text) {
		yield(text[begin:], nil)
	}
}

func (s *scanner) at(text string, at int) *addedToken {
	for _, t := range s.byFirst[text[at]] {
		if strings.HasPrefix(text[at:], t.text) && (!t.singleWord || standsAlone(text, at, at+len(t.text))) {
			return t
		}
	}
	return nil
}

func standsAlone(text string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return (start == 0 || !inWord(before)) && (end == len(text) || !inWord(after))
}

func inWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

package main

import (
	"errors"
	"strings"
	"unicode"
)

// shellWords splits text as a shell does that expands nothing: at blanks, but
// not within quotes; a backslash takes the next letter as it is.
func shellWords(text string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	begun, escaped := false, false
	for _, r := range text {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			begun, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			begun, quote = true, r
		case strings.ContainsRune(" \t\n", r):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			begun = true
			word.WriteRune(r)
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote or a backslash without its other end")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

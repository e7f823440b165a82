package token

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// pattern finds the pieces of a text as the regular expressions in
// tokenizer.json files do. Those are written for engines that look ahead; Go's
// does not, and needs no more than linear time. One use of it is everywhere:
//
//	\s+(?!\S)|\s+
//
// which is a run of white space, but for its last character where a word
// follows. Here it is a run in a group of its own, and find gives the last
// character back.
type pattern struct {
	expression *regexp.Regexp
	runGroup   int // the group of that run, or 0
}

const (
	lookAhead = `\s+(?!\S)`
	// \s of Unicode; Go's knows ASCII only.
	whiteSpace = `\t\n\v\f\r\x{85}\p{Z}`
)

func newPattern(source string) (pattern, error) {
	refused := func(what string) (pattern, error) {
		return pattern{}, fmt.Errorf("%w: %s in the pattern %q", ErrUnsupported, what, source)
	}
	text, run := source, ""
	if strings.Contains(source, lookAhead) {
		if strings.Count(source, lookAhead) > 1 || !strings.Contains(source, lookAhead+`|\s+`) {
			return refused("a look-ahead that is not " + lookAhead + `|\s+`)
		}
		run = "(?P<run>\\s+)"
		text = strings.Replace(source, lookAhead+`|\s+`, run, 1)
	}
	if strings.Contains(text, "(?=") || strings.Contains(text, "(?!") || strings.Contains(text, "(?<=") || strings.Contains(text, "(?<!") {
		return refused("a look-around")
	}
	translated, err := unicodeClasses(text)
	if err != nil {
		return refused(err.Error())
	}
	expression, err := regexp.Compile(translated)
	if err != nil {
		return refused(err.Error())
	}
	return pattern{expression: expression, runGroup: max(0, expression.SubexpIndex("run"))}, nil
}

// unicodeClasses gives \s, \S, \d and \D the meaning they have in the engines
// that patterns are written for.
func unicodeClasses(text string) (string, error) {
	var out strings.Builder
	inClass := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			switch {
			case text[i] == 's' && inClass:
				out.WriteString(whiteSpace)
			case text[i] == 's':
				out.WriteString("[" + whiteSpace + "]")
			case text[i] == 'S' && !inClass:
				out.WriteString("[^" + whiteSpace + "]")
			case text[i] == 'd':
				out.WriteString(`\p{Nd}`)
			case text[i] == 'D':
				out.WriteString(`\P{Nd}`)
			case strings.IndexByte("SwWbB", text[i]) >= 0:
				return "", fmt.Errorf(`\%c`, text[i])
			default:
				out.WriteString(text[i-1 : i+1])
			}
		case c == '[' && !inClass:
			inClass = true
			out.WriteByte(c)
		case c == ']' && inClass:
			inClass = false
			out.WriteByte(c)
		case c == '[' || c == '&' && inClass && strings.HasPrefix(text[i:], "&&"):
			return "", fmt.Errorf("a class within a class")
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}

// span is a part of a text, matched or between matches.
type span struct {
	start, end int
	matched    bool
}

// spans cuts all of text into matches and what lies between.
func (p pattern) spans(text string) []span {
	var spans []span
	end := 0
	for at := 0; at < len(text); {
		found := p.expression.FindStringSubmatchIndex(text[at:])
		if found == nil {
			break
		}
		start, stop := at+found[0], at+found[1]
		if stop == start {
			_, size := utf8.DecodeRuneInString(text[start:])
			at = start + max(size, 1)
			continue
		}
		if p.runGroup > 0 && found[2*p.runGroup] >= 0 && stop < len(text) {
			if _, size := utf8.DecodeLastRuneInString(text[start:stop]); stop-size > start {
				stop -= size
			}
		}
		if start > end {
			spans = append(spans, span{end, start, false})
		}
		spans = append(spans, span{start, stop, true})
		at, end = stop, stop
	}
	if end < len(text) {
		spans = append(spans, span{end, len(text), false})
	}
	return spans
}

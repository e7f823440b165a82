// Package clip cuts texts that another process wrote to what is kept of them.
package clip

import (
	"strings"
	"unicode"
)

// Text is text, or the beginning of one that has more than so many bytes, cut
// where a character ends, with mark behind it: both within limit. What is cut
// off is not kept alive.
func Text(text string, limit int, mark string) string {
	if len(text) <= limit {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:limit-len(mark)], "") + mark)
}

// Plain bounds a stranger's text, and takes out what would move a terminal's cursor.
func Plain(text string, limit int) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return ' '
		}
		return r
	}, Text(text, limit, "…"))
}

// Package clip cuts texts that another process wrote to what is kept of them.
package clip

import "strings"

// Text is text, or the beginning of one that has more than so many bytes, cut
// where a character ends, with mark behind it: both within limit. What is cut
// off is not kept alive.
func Text(text string, limit int, mark string) string {
	if len(text) <= limit {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:limit-len(mark)], "") + mark)
}

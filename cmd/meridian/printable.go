package main

import (
	"regexp"
	"strings"
	"unicode"
)

// colours are sequences that only colour what follows; many programs write them.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// reorders are characters that have a terminal show a line in another order than
// it was written.
var reorders = &unicode.RangeTable{R16: []unicode.Range16{
	{Lo: 0x061c, Hi: 0x061c, Stride: 1}, {Lo: 0x200e, Hi: 0x200f, Stride: 1}, {Lo: 0x202a, Hi: 0x202e, Stride: 1}, {Lo: 0x2066, Hi: 0x2069, Stride: 1},
}}

// printable is what another process wrote, as people may see it: it cannot drive
// their terminal. Lines and tabs stay.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(reorders, r) {
			return unicode.ReplacementChar
		}
		return r
	}, colours.ReplaceAllString(text, ""))
}

// longestName bounds, in characters, what is shown of a name that another
// process chose.
const longestName = 120

// oneLine is printable where a name is expected: part of a line, and not long.
func oneLine(text string) string {
	if len(text) > 4*longestName {
		text = text[:4*longestName] // whatever it is, it is cut
	}
	return short(strings.Join(strings.Fields(printable(text)), " "), longestName)
}

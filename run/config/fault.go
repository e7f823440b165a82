package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// Path is the dotted name of the field; empty when the file is no TOML.
	Path string `json:"path"`
	// Source is the file, or "environment NAME".
	Source string `json:"source"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Reason string `json:"reason"`
	// Given is the offending value, as written; empty when nothing was given.
	Given string `json:"given,omitempty"`
	// Nearest is the valid name closest to a mistyped one.
	Nearest string `json:"nearest,omitempty"`
}

func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Source)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	b.WriteString(": ")
	if f.Path != "" {
		fmt.Fprintf(&b, "%s: ", f.Path)
	}
	b.WriteString(f.Reason)
	if f.Given != "" {
		fmt.Fprintf(&b, "; got %s", f.Given)
	}
	if f.Nearest != "" {
		fmt.Fprintf(&b, "; did you mean %s?", f.Nearest)
	}
	return b.String()
}

// Error is every fault of a configuration, in the order of the file.
type Error struct {
	Faults []Fault
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Hint says what to do next.
func (e *Error) Hint() string {
	for _, f := range e.Faults {
		if f.Path == "" || f.Nearest != "" {
			continue
		}
		section, _, _ := strings.Cut(f.Path, ".")
		if _, known := findSection(section); !known {
			return "the sections are " + strings.Join(sectionNames(), ", ")
		}
		return fmt.Sprintf("`meridian config explain %s` tells what a field means", section)
	}
	return "`meridian config init` writes an annotated example"
}

// asError sorts faults into reading order; no faults is no error.
func asError(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	return &Error{Faults: faults}
}

// nearest returns the candidate that name was probably meant to be, or "". Case
// does not count. A candidate that shares less than half of either was not meant:
// "on" is no mistyped "off", and "foo" no "door".
func nearest(name string, candidates []string) string {
	name = strings.ToLower(name)
	best, bestDistance := "", min(max(2, len(name)/3), len(name)/2)+1
	for _, c := range candidates {
		if d := editDistance(name, strings.ToLower(c)); d < bestDistance && d <= len(c)/2 {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance is Levenshtein's, over bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Package licence recognises licence texts and says which licences Meridian may ship.
//
//	text of a file ── Classify ──▶ SPDX identifiers ─┐
//	                                                 ├─ Judge(use) ──▶ nil, or what is wrong
//	SPDX expression of a wheel ──── Parse ──▶ Terms ─┘
//
// Recognition goes by phrases, from the beginning, the middle and the end of each licence: a shortened text is not
// recognised, and a text that no maintainer has read yet is an error, never a guess.
package licence

import (
	"regexp"
	"slices"
	"strings"
)

// A fingerprint matches a text that holds all of has and none of lacks, after normalise.
type fingerprint struct {
	id    string
	has   []string
	lacks []string
}

var bsdPhrases = []string{
	"redistribution and use in source and binary forms with or without modification are permitted",
	"redistributions of source code must retain",
	"redistributions in binary form must reproduce",
	"even if advised of the possibility of such damage",
}

var fingerprints = []fingerprint{
	{id: "Apache-2.0", has: []string{
		"apache license version 2.0 january 2004",
		"grant of patent license",
		"accepting warranty or additional liability",
		"end of terms and conditions",
	}},
	{id: "Apache-2.0", has: []string{
		"licensed under the apache license version 2.0 the license you may not use this file except in compliance",
		"see the license for the specific language governing permissions and limitations under the license",
	}},
	{id: "MIT", has: []string{
		"permission is hereby granted free of charge to any person obtaining a copy",
		"the above copyright notice and this permission notice shall be included in all copies",
		"the use or other dealings in the software",
	}},
	{id: "BSD-2-Clause", has: bsdPhrases, lacks: []string{"endorse or promote", "advertising materials"}},
	{
		id: "BSD-3-Clause", has: append([]string{"endorse or promote products derived from"}, bsdPhrases...),
		lacks: []string{"advertising materials"},
	},
	{id: "BSD-4-Clause", has: []string{"all advertising materials mentioning features or use of this software"}},
	{id: "ISC", has: []string{
		"permission to use copy modify and/or distribute this software for any purpose with or without fee is hereby granted",
		"the above copyright notice and this permission notice appear in all copies",
		"in connection with the use or performance of this software",
	}},
	{id: "MPL-2.0", has: []string{
		"mozilla public license version 2.0",
		"covered software is provided under this license on an as is basis",
		"you may not remove or alter the substance of any license notices",
		"exhibit b incompatible with secondary licenses notice",
	}},
	{id: "CC0-1.0", has: []string{
		"cc0 1.0 universal",
		"public license fallback",
		"creative commons is not a party to this document",
	}},
	{id: "Unlicense", has: []string{
		"this is free and unencumbered software released into the public domain",
		"successors we intend this dedication to be an overt act of relinquishment in perpetuity",
		"dealings in the software",
	}},
	{id: "Zlib", has: []string{
		"in no event will the authors be held liable for any damages arising from the use of this software",
		"the origin of this software must not be misrepresented",
		"this notice may not be removed or altered from any source distribution",
	}},

	// Not allowed, and named all the same: "GPL-3.0" helps more than "unknown". One phrase is enough here, so that a
	// restriction appended to a permissive text does not hide behind it.
	{id: "GPL-2.0", has: []string{"gnu general public license version 2 june 1991"}},
	{id: "GPL-3.0", has: []string{"gnu general public license version 3 29 june 2007"}},
	{id: "LGPL-2.1", has: []string{"gnu lesser general public license version 2.1 february 1999"}},
	{id: "LGPL-3.0", has: []string{"gnu lesser general public license version 3 29 june 2007"}},
	{id: "AGPL-3.0", has: []string{"gnu affero general public license version 3 19 november 2007"}},
	{id: "LicenseRef-GNU-notice", has: []string{"under the terms of the gnu", "free software foundation"}},
	{id: "SSPL-1.0", has: []string{"server side public license"}},
	{id: "BUSL-1.1", has: []string{"business source license"}},
	{id: "Elastic-2.0", has: []string{"elastic license 2.0"}},
	{id: "LicenseRef-Commons-Clause", has: []string{"commons clause"}},
	{id: "LicenseRef-NonCommercial", has: []string{"noncommercial purposes"}},
	{id: "LicenseRef-NonCommercial", has: []string{"non commercial purposes"}},
}

// Classify returns the SPDX identifiers of all licences found in text, sorted; none when it knows none of it.
// A file with several licences is bound by all of them.
func Classify(text string) []string {
	plain := normalise(text)
	var ids []string
	for _, f := range fingerprints {
		if f.matches(plain) {
			ids = append(ids, f.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (f fingerprint) matches(plain string) bool {
	for _, phrase := range f.has {
		if !strings.Contains(plain, phrase) {
			return false
		}
	}
	for _, phrase := range f.lacks {
		if strings.Contains(plain, phrase) {
			return false
		}
	}
	return true
}

var notWords = regexp.MustCompile(`[^a-z0-9./]+|\.(?:\s|$)`)

// normalise reduces a text to lower-case words with one space between them, so that wrapping, bullets, quotes and
// comment signs do not matter. Dots and slashes inside a word stay: "2.0", "and/or".
func normalise(text string) string {
	return strings.Join(strings.Fields(notWords.ReplaceAllString(strings.ToLower(text), " ")), " ")
}

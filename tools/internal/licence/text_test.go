package licence

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// specimens returns the texts in testdata by file name without its ending.
func specimens(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no specimens: %v", err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimSuffix(filepath.Base(path), ".txt")] = string(text)
	}
	return texts
}

func TestClassifyRealTexts(t *testing.T) {
	for want, text := range specimens(t) {
		if got := strings.Join(Classify(text), "+"); got != want {
			t.Errorf("%s classified as %q", want, got)
		}
	}
}

func TestClassifyRefusesTruncatedTexts(t *testing.T) {
	for name, text := range specimens(t) {
		if strings.Contains(name, "+") {
			continue // cut in the second of two licences, the first is still whole
		}
		for _, kept := range []int{0, len(text) / 4, len(text) / 2, len(text) * 3 / 4} {
			if got := Classify(text[:kept]); len(got) > 0 {
				t.Errorf("%s: the first %d of %d bytes were taken for %v", name, kept, len(text), got)
			}
		}
	}
}

const (
	isc = `Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR
ANY DAMAGES ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.`

	zlib = `This software is provided 'as-is', without any express or implied
warranty. In no event will the authors be held liable for any damages
arising from the use of this software.

1. The origin of this software must not be misrepresented; you must not claim that you wrote the original software.
2. Altered source versions must be plainly marked as such.
3. This notice may not be removed or altered from any source distribution.`

	unlicense = `This is free and unencumbered software released into the public domain.
We make this dedication for the benefit of the public at large and to the detriment of our heirs and
successors. We intend this dedication to be an overt act of
relinquishment in perpetuity of all present and future rights to this software under copyright law.
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`

	gpl3 = `                    GNU GENERAL PUBLIC LICENSE
                       Version 3, 29 June 2007

 Copyright (C) 2007 Free Software Foundation, Inc. <https://fsf.org/>
 Everyone is permitted to copy and distribute verbatim copies
 of this license document, but changing it is not allowed.`

	gplNotice = `This program is free software: you can redistribute it and/or modify
it under the terms of the GNU General Public License as published by
the Free Software Foundation, either version 3 of the License, or (at your option) any later version.`
)

func TestClassifyShortTexts(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"isc":               {isc, "ISC"},
		"zlib":              {zlib, "Zlib"},
		"unlicense":         {unlicense, "Unlicense"},
		"commented":         {"# " + strings.ReplaceAll(zlib, "\n", "\n# "), "Zlib"},
		"windows newlines":  {strings.ReplaceAll(isc, "\n", "\r\n"), "ISC"},
		"two in one":        {isc + "\n\n" + zlib, "ISC Zlib"},
		"gpl":               {gpl3, "GPL-3.0"},
		"gpl notice":        {gplNotice, "LicenseRef-GNU-notice"},
		"gpl behind zlib":   {zlib + gpl3, "GPL-3.0 Zlib"},
		"restricted":        {isc + `"Commons Clause" License Condition v1.0`, "ISC LicenseRef-Commons-Clause"},
		"empty":             {"", ""},
		"a licence's name":  {"MIT", ""},
		"something else":    {"All rights reserved. Ask us before you use this.", ""},
		"isc without grant": {isc[strings.Index(isc, "provided"):], ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(Classify(c.text), " "); got != c.want {
				t.Errorf("classified as %q, want %q", got, c.want)
			}
		})
	}
}

// A fingerprint that its own normalisation can never match would silently recognise nothing.
func TestFingerprintsAreNormalised(t *testing.T) {
	for _, f := range fingerprints {
		for _, phrase := range slices.Concat(f.has, f.lacks) {
			if normalise(phrase) != phrase {
				t.Errorf("%s: phrase %q can never match; write it as %q", f.id, phrase, normalise(phrase))
			}
		}
	}
}

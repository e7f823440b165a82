package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const zlibText = `In no event will the authors be held liable for any damages arising from the use of this software.
1. The origin of this software must not be misrepresented.
3. This notice may not be removed or altered from any source distribution.`

// environment lays out a project that requires top, and a virtual environment with the given metadata headers.
func environment(t *testing.T, distributions map[string]string) (pyproject, venv string) {
	t.Helper()
	dir := t.TempDir()
	pyproject, venv = filepath.Join(dir, "pyproject.toml"), filepath.Join(dir, ".venv")
	write(t, pyproject, "[project]\nname = \"x\"\ndependencies = [\"Top>=1,<2\"]\n")
	for name, headers := range distributions {
		info := filepath.Join(venv, "lib", "python3.11", "site-packages", name+"-1.0.dist-info")
		write(t, filepath.Join(info, "METADATA"), "Name: "+name+"\nVersion: 1.0\n"+headers+"\n")
		if strings.Contains(headers, "with text") {
			write(t, filepath.Join(info, "licenses", "LICENSE"), zlibText)
		}
	}
	return pyproject, venv
}

func TestPythonSectionFollowsRequirements(t *testing.T) {
	pyproject, venv := environment(t, map[string]string{
		"top": "License-Expression: MIT\nRequires-Dist: legacy\nRequires-Dist: absent; python_version < '3'\n" +
			"Requires-Dist: testing; extra == 'dev'\n",
		"legacy":  "License: CC0-1.0 OR Apache-2.0\nRequires-Dist: texts\nRequires-Dist: top\n",
		"texts":   "License: zlib, with text\n",
		"testing": "License-Expression: GPL-3.0-only\n",
		"other":   "License-Expression: GPL-3.0-only\n",
	})
	section, err := pythonSection(pyproject, venv)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := summary(section), []string{"legacy=CC0-1.0 OR Apache-2.0", "texts=Zlib", "top=MIT"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPythonSectionRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		distributions map[string]string
		want          string
	}{
		"a refused licence": {map[string]string{"top": "License-Expression: GPL-3.0-only\n"}, "top 1.0: licence not allowed in shipped code: GPL-3.0-only; use another package"},
		"a refused requirement": {
			map[string]string{"top": "License-Expression: MIT\nRequires-Dist: below\n", "below": "License-Expression: MPL-2.0\n"},
			"below 1.0: licence not allowed",
		},
		"no licence":       {map[string]string{"top": ""}, "top 1.0: unknown licence: there is no LICENSE or COPYING file; read its licence"},
		"prose":            {map[string]string{"top": "License: ask me\n"}, "top 1.0: unknown licence"},
		"a bad expression": {map[string]string{"top": "License-Expression: MIT License\n"}, "top 1.0: unknown licence: SPDX expression"},
		"not installed":    {map[string]string{"other": "License-Expression: MIT\n"}, "top: not installed in .venv; install what"},
	} {
		t.Run(name, func(t *testing.T) {
			section, err := pythonSection(environment(t, c.distributions))
			if err != nil {
				t.Fatal(err)
			}
			report := newReport(section)
			if len(report.Failures) != 1 || !strings.HasPrefix(report.Failures[0], c.want) {
				t.Errorf("failures %q, want one that begins with %q", report.Failures, c.want)
			}
		})
	}
}

func TestPythonSectionSaysThatItWasSkipped(t *testing.T) {
	pyproject, venv := environment(t, nil)
	section, err := pythonSection(pyproject, venv)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := newReport(section).print(&out); err != nil {
		t.Fatal(err)
	}
	if want := "Python packages the wheel requires: skipped: no .venv\n"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("printed %q, want %q first", out.String(), want)
	}
}

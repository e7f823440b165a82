package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"meridian/tools/internal/gomodule"
	"meridian/tools/internal/licence"
)

// This module serves as the program: its licence checker links one module, its other packages need more.
func TestGoSectionsOfARealModule(t *testing.T) {
	linked, tests, err := goSections(context.Background(), "..", "./licences")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := summary(linked), []string{"github.com/BurntSushi/toml=MIT", "std=BSD-3-Clause"}; !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", linked.Title, got, want)
	}
	got := summary(tests)
	if !slices.Contains(got, "github.com/CycloneDX/cyclonedx-go=Apache-2.0") || slices.Contains(got, "std=BSD-3-Clause") {
		t.Errorf("%s: got %v, want what the other packages need and nothing of the above", tests.Title, got)
	}
}

func summary(section Section) []string {
	var lines []string
	for _, d := range section.Dependencies {
		lines = append(lines, d.Name+"="+d.Licence+d.Problem)
	}
	return lines
}

func TestGoSectionNamesModuleVersionAndRemedy(t *testing.T) {
	modules := map[string]gomodule.Module{
		"example.org/file":   {Path: "example.org/file", Version: "v1.2.3", Files: []licence.File{{Path: "LICENSE", IDs: []string{"MPL-2.0"}}}},
		"example.org/secret": {Path: "example.org/secret", Version: "v4.5.6", Files: []licence.File{{Path: "COPYING"}}},
		"example.org/fine":   {Path: "example.org/fine", Version: "v1.0.0", Files: []licence.File{{Path: "LICENSE", IDs: []string{"MIT"}}}},
	}
	report := newReport(goSection("linked", modules, licence.Shipped), goSection("tests", modules, licence.TestOnly))
	want := []string{
		"example.org/file v1.2.3: licence not allowed in shipped code: MPL-2.0; use another package",
		"example.org/secret v4.5.6: unknown licence in COPYING; read its licence",
		"example.org/secret v4.5.6: unknown licence in COPYING; read its licence",
	}
	if len(report.Failures) != len(want) {
		t.Fatalf("failures %q, want %d", report.Failures, len(want))
	}
	for i := range want {
		if !strings.HasPrefix(report.Failures[i], want[i]) {
			t.Errorf("failure %q, want %q first", report.Failures[i], want[i])
		}
	}
	var out strings.Builder
	if err := report.print(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "licences: 3 of 6 refused\n") {
		t.Errorf("printed %q", out.String())
	}
}

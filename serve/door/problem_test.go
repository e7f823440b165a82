package door

import (
	"os"
	"regexp"
	"testing"
)

// The table of docs/wire.md is Codes, word for word.
func TestCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?s)\| Code \| Means \|\n\|---\|---\|\n((?:\|[^\n]*\n)+)`).FindSubmatch(text)
	if section == nil {
		t.Fatal("docs/wire.md has no table of codes")
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(section[1]), -1)
	seen := make(map[string]bool)
	for i, c := range Codes {
		if i >= len(rows) || rows[i][1] != c.Code || rows[i][2] != c.Means {
			t.Fatalf("row %d of docs/wire.md is not | `%s` | %s |", i+1, c.Code, c.Means)
		}
		if seen[c.Code] {
			t.Errorf("%s is there twice", c.Code)
		}
		seen[c.Code] = true
	}
	if len(rows) != len(Codes) {
		t.Errorf("docs/wire.md has %d codes, Codes %d", len(rows), len(Codes))
	}
}

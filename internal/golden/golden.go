// Package golden holds committed files to what the code makes of them. A test
// calls File or Section; `make generate` runs the same tests with -update,
// which writes instead of comparing.
package golden

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write generated files instead of comparing them")

// File demands that the file at path is exactly want.
func File(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Errorf("%v: run `make generate`", err)
		return
	}
	compare(t, path, got, want)
}

// Section demands that the part of a hand-written file between the lines
// `<!-- name: generated, do not edit -->` and `<!-- end of name -->` is want.
func Section(t *testing.T, path, name, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	begin := fmt.Appendf(nil, "<!-- %s: generated, do not edit -->\n", name)
	end := fmt.Appendf(nil, "<!-- end of %s -->", name)
	head, rest, opened := bytes.Cut(got, begin)
	_, tail, closed := bytes.Cut(rest, end)
	if !opened || !closed {
		t.Errorf("%s has no lines %q and %q", path, bytes.TrimSpace(begin), end)
		return
	}
	compare(t, path, got, bytes.Join([][]byte{head, begin, []byte(want), end, tail}, nil))
}

func compare(t *testing.T, path string, got, want []byte) {
	t.Helper()
	switch {
	case bytes.Equal(got, want):
	case *update:
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("%s is not what the code makes of it (first difference in line %d): run `make generate`", path, differingLine(got, want))
	}
}

func differingLine(a, b []byte) int {
	line := 1
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			break
		}
		if a[i] == '\n' {
			line++
		}
	}
	return line
}

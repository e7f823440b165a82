package mutant

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	seen := make(map[Name]bool)
	for _, n := range slices.Concat(Names(), OfHandOffs(), OfStore()) {
		if seen[n] || n == "" {
			t.Errorf("%q is listed twice, or has no name", n)
		}
		seen[n] = true
		if !slices.ContainsFunc(edits, func(e edit) bool { return e.bug == n }) {
			t.Errorf("%s is listed, and no edit makes it", n)
		}
		if Is(n) != (os.Getenv("MERIDIAN_MUTANT") == string(n)) {
			t.Errorf("this run has %s: %t", n, Is(n))
		}
	}
	if len(seen) < 56 {
		t.Errorf("only %d bugs are listed", len(seen))
	}
	for _, e := range edits {
		if !seen[e.bug] {
			t.Errorf("an edit makes %s, which is not listed", e.bug)
		}
		if !strings.Contains(e.new, "BUG") {
			t.Errorf("%s: an edit of %s does not ask whether it was chosen", e.bug, e.file)
		}
	}
}

// An edit whose place has changed is named.
func TestPlantNamesWhatHasMoved(t *testing.T) {
	root, first := t.TempDir(), edits[0]
	path := filepath.Join(root, first.file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"package x\n", "package x\n" + first.old + "\n" + first.old + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := plant(root, nil); err == nil || !strings.Contains(err.Error(), string(first.bug)) || !strings.Contains(err.Error(), first.file) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

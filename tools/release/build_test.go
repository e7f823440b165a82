package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDocumentsNamesWhatIsMissing(t *testing.T) {
	whole := []string{"LICENSE", "README.md", "CHANGELOG.md", "include/meridian/mrdn.hpp"}
	tree := t.TempDir()
	for _, name := range whole {
		write(t, tree, map[string]string{name: "x"})
	}
	entries, err := documents(tree)
	if err != nil || len(entries) != len(whole) {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, name := range whole {
		if err := os.Remove(filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := documents(tree); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, "/mrdn.hpp")) {
			t.Errorf("without %s: %v", name, err)
		}
		write(t, tree, map[string]string{name: "x"})
	}
}

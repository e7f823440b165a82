package mutant

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Overlay writes the files that have these bugs, or any where none is named, into
// dir, and returns the path of the overlay that `go build -overlay` takes. Root is
// the repository's. A bug whose place is not found, or found twice, is an error
// that names it.
func Overlay(root, dir string, bugs ...Name) (path string, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return "", err
	}
	planted, err := plant(root, bugs)
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for file, text := range planted {
		at := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, file)] = at
	}
	content, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, content, 0o600)
}

// plant returns the files that have bugs, by their path below root.
func plant(root string, bugs []Name) (map[string]string, error) {
	planted := make(map[string]string)
	for _, e := range edits {
		if len(bugs) > 0 && !slices.Contains(bugs, e.bug) {
			continue
		}
		text, begun := planted[e.file]
		if !begun {
			content, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, fmt.Errorf("mutant: %s: %w", e.bug, err)
			}
			text = withImport(string(content))
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("mutant: %s: %s has %d places that read %q; it must be one: mend its edit in internal/mutant", e.bug, e.file, n, e.old)
		}
		planted[e.file] = strings.Replace(text, e.old, strings.ReplaceAll(e.new, "BUG", fmt.Sprintf("mutant.Is(%q)", e.bug)), 1)
	}
	for file, text := range planted {
		if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
			return nil, fmt.Errorf("mutant: with its bugs, %w", err)
		}
	}
	return planted, nil
}

// withImport imports this package on the line of the package clause, so that
// other lines keep their numbers.
func withImport(text string) string {
	at := strings.Index("\n"+text, "\npackage ")
	end := at + strings.IndexByte(text[at:], '\n')
	return text[:end] + `; import "meridian/internal/mutant"` + text[end:]
}

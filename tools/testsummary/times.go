package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// times are the seconds that packages of Go took when they last ran. On a few
// cores a slow one that begins last is all that the others' end is waited for.
type times map[string]float64

const timesFile = "times.json"

// readTimes knows nothing where nothing can be read: then the order is that of names.
func readTimes(path string) times {
	t := make(times)
	if text, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(text, &t)
	}
	return t
}

func (t times) sort(packages []string) {
	slices.SortStableFunc(packages, func(a, b string) int { return cmp.Compare(t[b], t[a]) })
}

// learn counts the tests of each package that ran; their subtests are in them.
func (t times) learn(all []result) {
	ran := make(times)
	for _, r := range all {
		if r.pkg != "" && !r.cached && !strings.Contains(strings.TrimPrefix(r.name, r.pkg), "/") {
			ran[r.pkg] += r.took.Seconds()
		}
	}
	maps.Copy(t, ran)
}

func (t times) write(path string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

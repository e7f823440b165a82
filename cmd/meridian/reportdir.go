package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// errOccupied means that a directory holds something else than a report.
var errOccupied = errors.New("this directory is not for a report")

// reportFiles are what a report's directory may hold.
var reportFiles = []string{"report.html", "report.json", "report.md"}

// mayHold says whether writeDir will take dir: it is not there yet, empty, or
// holds a report and nothing else.
func mayHold(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errOccupied, err)
	}
	for _, e := range entries {
		if !slices.Contains(reportFiles, e.Name()) {
			return fmt.Errorf("%w: %s holds %s; a report would replace the whole directory", errOccupied, dir, e.Name())
		}
	}
	return nil
}

// writeDir leaves either all files in dir or what was there before: they are
// written beside it, and then it is replaced.
func writeDir(dir string, files map[string]func(io.Writer) error) error {
	dir = filepath.Clean(dir)
	if err := mayHold(dir); err != nil {
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	partial := filepath.Join(parent, ".meridian-"+rand.Text())
	if err := os.Mkdir(partial, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(partial) // whatever is left of it
	for name, write := range files {
		if err := writeAtomic(filepath.Join(partial, name), write); err != nil {
			return err
		}
	}
	old := partial + "-old"
	err := os.Rename(dir, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if moved := os.Rename(partial, dir); moved != nil {
		if err == nil {
			moved = errors.Join(moved, os.Rename(old, dir))
		}
		return moved
	}
	return os.RemoveAll(old)
}

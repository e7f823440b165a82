package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checkReplaceable refuses an output directory that holds anything but an earlier release: it would be deleted.
func checkReplaceable(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(out, checksumsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	released := map[string]bool{checksumsName: true}
	for line := range strings.Lines(string(sums)) {
		if _, name, found := strings.Cut(strings.TrimSpace(line), "  "); found {
			released[name] = true
		}
	}
	for _, entry := range entries {
		if !released[entry.Name()] {
			return fmt.Errorf("%s holds %s, which is not part of an earlier release; name another directory with -out",
				out, entry.Name())
		}
	}
	return nil
}

// publish puts the files of from at out in one step: a reader sees the old release or the new one, or, for the
// instant between two renames, none, but never a half one.
func publish(from, out string) (err error) {
	if err := checkReplaceable(out); err != nil {
		return err
	}
	parent := filepath.Dir(out)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(parent, ".release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	ready, old := filepath.Join(staging, "new"), filepath.Join(staging, "old")
	if err := os.CopyFS(ready, os.DirFS(from)); err != nil {
		return err
	}
	if err := os.Rename(out, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(ready, out); err != nil {
		return errors.Join(err, restore(old, out))
	}
	return nil
}

func restore(old, out string) error {
	if err := os.Rename(old, out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

package edge

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
)

// KeyFiles are where keys stand that let clients and operators in, one a line; empty for none.
type KeyFiles struct {
	API, Admin string
	// Given are keys of the API that stand in no file.
	Given  []string
	Logger *slog.Logger
}

// Read fills in the keys of which there are files.
func (f KeyFiles) Read(api, admin *[]string) error {
	return f.Reload(func(keys []string) error { *api = keys; return nil }, func(keys []string) error { *admin = keys; return nil })
}

// Reload reads the files again; where one cannot be used, the keys in force stay.
func (f KeyFiles) Reload(setAPI, setAdmin func([]string) error) error {
	set := func(file string, given []string, set func([]string) error) error {
		if file == "" {
			return nil
		}
		keys, err := keysOf(file, given, f.Logger)
		if err != nil {
			return err
		}
		return set(keys)
	}
	return errors.Join(set(f.API, f.Given, setAPI), set(f.Admin, nil, setAdmin))
}

// keysOf adds the API keys in a file, one a line, to those that are given.
func keysOf(file string, given []string, logger *slog.Logger) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("gateway: API keys: %w", err)
	}
	if info, err := os.Stat(file); err == nil && info.Mode()&fs.FileMode(0o077) != 0 {
		logger.Warn("others can read the file of API keys", "file", file, "mode", info.Mode().Perm().String())
	}
	keys := slices.Clone(given)
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			keys = append(keys, string(line))
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("gateway: there is no API key in %s; put one on each line, or do without the file", file)
	}
	return keys, nil
}

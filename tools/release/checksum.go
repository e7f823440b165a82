package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const checksumsName = "SHA256SUMS"

// Sums maps file names to their SHA-256 in hexadecimal.
type Sums map[string]string

// sumDir reads all files of dir, which has no directories in it.
func sumDir(dir string) (Sums, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sums := Sums{}
	for _, entry := range entries {
		if sums[entry.Name()], err = sumFile(filepath.Join(dir, entry.Name())); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

func sumFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Names lists the files, sorted.
func (s Sums) Names() []string { return slices.Sorted(maps.Keys(s)) }

// String is the form that sha256sum -c reads.
func (s Sums) String() string {
	var text strings.Builder
	for _, name := range s.Names() {
		fmt.Fprintf(&text, "%s  %s\n", s[name], name)
	}
	return text.String()
}

// Differences names the files that are not the same in both, sorted.
func (s Sums) Differences(other Sums) []string {
	differ := map[string]bool{}
	for name := range s {
		differ[name] = true
	}
	for name := range other {
		differ[name] = true
	}
	maps.DeleteFunc(differ, func(name string, _ bool) bool { return s[name] == other[name] })
	return slices.Sorted(maps.Keys(differ))
}

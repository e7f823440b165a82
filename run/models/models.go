// Package models holds the checked table of think markers: one file per model
// family, each a [model.<name>] table of meridian.toml with the source its ids
// were read from. `meridian config init --model NAME` copies one.
package models

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.toml
var files embed.FS

// Names lists the families in alphabetical order.
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err) // the files are part of the program
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), path.Ext(e.Name()))
	}
	return names
}

// Text returns the table of one family, as TOML.
func Text(name string) (string, error) {
	text, err := files.ReadFile(name + ".toml")
	if err != nil {
		return "", fmt.Errorf("no model family %q: there are %s", name, strings.Join(Names(), ", "))
	}
	return string(text), nil
}

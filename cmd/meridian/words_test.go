package main

import (
	"slices"
	"testing"
)

func TestShellWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                           nil,
		"  \n ":                      nil,
		"--dtype float32":            {"--dtype", "float32"},
		` a  'b "c" d'e "f 'g\" h" `: {"a", `b "c" de`, `f 'g" h`},
		`--x '{"a": 1}' ""`:          {"--x", `{"a": 1}`, ""},
		`a\ b \'`:                    {"a b", "'"},
		`'\'`:                        {`\`},
	} {
		if got, err := shellWords(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"'", `"a`, `\`, `"a\"`} {
		if got, err := shellWords(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

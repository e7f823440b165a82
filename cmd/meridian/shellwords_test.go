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

func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"/a/b-1.crt": "/a/b-1.crt", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "a$b": "'a$b'", "ä": "'ä'",
	} {
		got := quoted(word)
		if back, err := shellWords(got); got != want || err != nil || !slices.Equal(back, []string{word}) {
			t.Errorf("%q: %s, want %s; read back %q, %v", word, got, want, back, err)
		}
	}
}

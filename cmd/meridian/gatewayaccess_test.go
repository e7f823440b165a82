package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meridian/run/config"
)

func TestKeyOfAnEntrance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(" # comment\n\n secret team\nother\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ variable, file, key, header string }{
		"none":              {"", config.None, "", ""},
		"file":              {"", file, "secret", `-H "Authorization: Bearer $(awk '!/^ *#/ && NF {print $1; exit}' ` + file + `)"`},
		"variable":          {"hidden team,more", file, "hidden", `-H "Authorization: Bearer ${MERIDIAN_API_KEY%%[, ]*}"`},
		"file without keys": {"", os.DevNull, "", ""},
	} {
		t.Setenv("MERIDIAN_API_KEY", c.variable)
		e, err := newEntrance(&config.Config{Gateway: config.Gateway{APIKeyFile: c.file, TLSCert: config.None}})
		if err != nil {
			t.Fatal(err)
		}
		curl := e.curl("http://127.0.0.1:8080", `a "model"`)
		if e.client("").Key != c.key || !strings.Contains(curl, c.header) || strings.Contains(curl, "Authorization") != (c.header != "") {
			t.Errorf("%s: key %q, %s", name, e.key, curl)
		}
		if c.key != "" && strings.Contains(curl, c.key) || !strings.Contains(curl, `"model": "a \"model\""`) {
			t.Errorf("%s: %s", name, curl)
		}
	}
}

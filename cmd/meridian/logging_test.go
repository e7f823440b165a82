package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A flag wins over the environment, that over the file, that over the defaults.
func TestLogger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meridian.toml")
	if err := os.WriteFile(file, []byte("[logging]\nlevel = \"error\"\nformat = \"json\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing.toml")
	for name, c := range map[string]struct {
		flags       commands
		environment string
		want        string // of what a warning is written as
	}{
		"defaults":    {commands{Config: missing}, "", "level=WARN msg=careful\n"},
		"file":        {commands{Config: file}, "", ""},
		"environment": {commands{Config: file}, "warn", `"level":"WARN","msg":"careful"}` + "\n"},
		"flags":       {commands{Config: file, LogLevel: "debug", LogFormat: "text"}, "error", "level=WARN msg=careful\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.environment != "" {
				t.Setenv("MERIDIAN_LOGGING_LEVEL", c.environment)
			}
			var errs bytes.Buffer
			c.flags.logger(&stdio{err: &errs}).Warn("careful")
			if got := errs.String(); !strings.HasSuffix(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestIsTerminal(t *testing.T) {
	for path, want := range map[string]bool{"/dev/ptmx": true, os.DevNull: false, "/dev/full": false} {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if isTerminal(f) != want {
			t.Errorf("%s is a terminal: %v", path, !want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFramesAreNotWrittenToATerminal(t *testing.T) {
	var out, errs bytes.Buffer
	status := run([]string{"frame", "encode", "--tier", "think_active"},
		&stdio{in: strings.NewReader("x"), out: &out, err: &errs, terminal: true})
	if status != exitInvalid || out.Len() > 0 || !strings.Contains(errs.String(), "hint: pipe it") {
		t.Errorf("status %d, %d bytes\n%s", status, out.Len(), errs.String())
	}
}

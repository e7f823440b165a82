package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is committed is what the schemas make.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	if err := run("../..", true); err != nil {
		t.Fatal(err)
	}
}

// The check must be able to fail.
func TestCheckFindsDrift(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := place(path, []byte("new"), false); err != nil {
		t.Fatal(err)
	}
	if err := place(path, []byte("new"), true); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := place(path, []byte("new"), true); err == nil || !strings.Contains(err.Error(), "make generate") {
		t.Errorf("drift is answered with %v", err)
	}
}

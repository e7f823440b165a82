// Package require lets a test ask for something this machine may not have: a
// compiler, a shell, a peer. Without it the test is skipped, and the summary
// of `make test` names what was missing; MERIDIAN_REQUIRE=a,b turns the skip
// into a failure, which is how CI makes sure that nothing is skipped there.
package require

import (
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// components lists what may be named, one a line. What starts the tests or
// the checks refuses a name in MERIDIAN_REQUIRE that is not in it, because a
// mistyped demand that demands nothing is worse than none.
//
//go:embed components.txt
var components string

func listed(component string) bool {
	return strings.Contains("\n"+components, "\n"+component+": ")
}

// Required reports whether MERIDIAN_REQUIRE names component.
func Required(component string) bool {
	demanded := strings.ReplaceAll(os.Getenv("MERIDIAN_REQUIRE"), ",", " ")
	return slices.Contains(strings.Fields(demanded), component)
}

// Skip skips the test for lack of component, or fails it if that is required.
// The wording is read back by tools/testsummary and written alike by
// python/tests/conftest.py.
func Skip(t testing.TB, component, reason string) {
	t.Helper()
	if !listed(component) {
		t.Fatalf("internal/require/components.txt does not list %s, so MERIDIAN_REQUIRE cannot demand it", component)
	}
	message := fmt.Sprintf("needs %s: %s", component, reason)
	if Required(component) {
		t.Fatalf("%s, and MERIDIAN_REQUIRE demands it", message)
	}
	t.Skip(message)
}

// Program returns the path of the program that the component of the same name
// installs, or of one that stands for it and is preferred.
func Program(t testing.TB, component string, preferred ...string) string {
	t.Helper()
	// Go keeps the result of a test until something that it asked for changes, and
	// programs outside of the tree do not count. This names those of this machine.
	_ = os.Getenv("MERIDIAN_HAVE")
	for _, name := range append(preferred, component) {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Skip(t, component, "not on PATH")
	return ""
}

// Reads tells Go what a process that the test starts will read of the tree, files
// or folders, whether or not they are there: Go would not see that they are
// inputs, and keep the result of the test when they change.
func Reads(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := filepath.WalkDir(path, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// Package need lets a test ask for something this machine may not have: a
// compiler, a shell, a peer. Without it the test is skipped, and the summary
// of `make test` names what was missing; MERIDIAN_REQUIRE=a,b turns the skip
// into a failure, which is how CI makes sure that nothing is skipped there.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Required reports whether MERIDIAN_REQUIRE names component.
func Required(component string) bool {
	return slices.Contains(strings.Split(os.Getenv("MERIDIAN_REQUIRE"), ","), component)
}

// Skip skips the test for lack of component, or fails it if that is required.
// The wording is read back by tools/tally and written alike by
// python/tests/conftest.py.
func Skip(t testing.TB, component, reason string) {
	t.Helper()
	message := fmt.Sprintf("needs %s: %s", component, reason)
	if Required(component) {
		t.Fatalf("%s, and MERIDIAN_REQUIRE demands it", message)
	}
	t.Skip(message)
}

// Program returns the path of a program that the component of the same name
// installs.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, name, "not on PATH")
	}
	return path
}

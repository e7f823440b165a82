package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSlowest(t *testing.T) {
	all := []result{
		{name: "meridian/kv.TestA", took: 9 * time.Second},
		{name: "meridian/kv.TestA/b", took: time.Second},
		{name: "meridian/kv.TestA/c", took: 8 * time.Second},
		{name: "meridian/kv.TestKept", took: 20 * time.Second, cached: true},
		{name: "meridian/kv.TestLacking", took: 7 * time.Second, verdict: skipped},
		{name: "tests.test_a.test_b[x/y]", took: 3 * time.Second, verdict: failed},
		{name: "c++.header"},
	}
	var names []string
	for _, r := range slowest(all, 2) {
		names = append(names, r.name)
	}
	if want := []string{"meridian/kv.TestA/c", "tests.test_a.test_b[x/y]"}; !slices.Equal(names, want) {
		t.Errorf("the slowest two are %q, want %q", names, want)
	}
	if n := len(slowest(all, 20)); n != 3 {
		t.Errorf("%d tests ran, want 3", n)
	}
}

// What Go does not run again is told apart from what ran, in whole packages.
func TestWhatIsUnchangedIsNotRun(t *testing.T) {
	test := "package %\nimport (\"testing\"; \"time\")\nfunc Test%(t *testing.T) { time.Sleep(20 * time.Millisecond) }\n"
	root := scratch(t, map[string]string{"a/a_test.go": strings.ReplaceAll(test, "%", "A"), "b/b_test.go": strings.ReplaceAll(test, "%", "B")})
	run := func() (shown, unchanged, packages int) {
		var all []result
		if err := goTest(root, []string{"test", "-json", "./..."}, os.Environ(), collect(&all)); err != nil || count(all, passed) != 2 {
			t.Fatalf("%v: %+v", err, all)
		}
		unchanged, packages = unchangedPackages(all)
		return len(slowest(all, 20)), unchanged, packages
	}
	check := func(when string, wantShown, wantUnchanged int) {
		if shown, unchanged, packages := run(); shown != wantShown || unchanged != wantUnchanged || packages != 2 {
			t.Errorf("%s: %d slow tests, %d of %d packages unchanged, want %d and %d", when, shown, unchanged, packages, wantShown, wantUnchanged)
		}
	}
	check("at first", 2, 0)
	check("once more", 0, 2)
	if err := os.WriteFile(filepath.Join(root, "b", "b_test.go"), []byte(strings.ReplaceAll(test, "%", "C")), 0o600); err != nil {
		t.Fatal(err)
	}
	check("after a change of one", 1, 1)
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each test of make test-core exists, and asks for a component that may be demanded.
func TestCoreTestsExist(t *testing.T) {
	components, err := readComponents("../..")
	if err != nil {
		t.Fatal(err)
	}
	rows := coreTests()
	if len(rows) < 10 {
		t.Errorf("core.txt has only %d rows", len(rows))
	}
	for _, c := range rows {
		for _, name := range c.components {
			if !slices.Contains(components, name) {
				t.Errorf("%s: %s is not in %s", c.test, name, componentsList)
			}
		}
		files, head := filepath.Join("../..", c.pkg, "*_test.go"), "func "
		name, _, _ := strings.Cut(c.test, "/")
		if c.pkg == "" {
			path, id, _ := strings.Cut(c.test, "::")
			files, head = filepath.Join("../../python", path), "def "
			name, _, _ = strings.Cut(id, "[")
		}
		if !contains(t, files, head+name+"(") {
			t.Errorf("core.txt names %s, and no %s has it", c.test, files)
		}
	}
}

func contains(t *testing.T, pattern, text string) bool {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		all, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(all), text)
	})
}

// Of all that continuous integration demands, what make test does not ask for has
// its test in make test-core.
func TestCoreHasWhatIsDemanded(t *testing.T) {
	script, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	demand := regexp.MustCompile(`(?m)^export MERIDIAN_REQUIRE=(.*)$`).FindStringSubmatch(string(script))
	if demand == nil {
		t.Fatal(".ci/run demands nothing")
	}
	// By make test; and iperf3 is only measured beside, in make test-real.
	shown := []string{"cc", "c++", "curl", "git", "make", "readelf", "python-packages", "ip", "openssl", "promtool", "iperf3"}
	for _, c := range coreTests() {
		shown = append(shown, c.components...)
	}
	for _, component := range strings.Split(demand[1], ",") {
		if !slices.Contains(shown, component) {
			t.Errorf("no test of make test or make test-core shows %s", component)
		}
	}
}

// Subtests that are named run without the others, and what is not there is missed.
func TestOnlyNamedTestsRun(t *testing.T) {
	root := scratch(t, map[string]string{"a/a_test.go": `package a
import "testing"
func TestA(t *testing.T) { for _, n := range []string{"x y", "z", "bad"} { t.Run(n, func(t *testing.T) { if n == "bad" { t.Error("not asked for") } }) } }
func TestB(t *testing.T) { t.Error("not asked for") }
`})
	rows := []result{
		{name: "scratch/a.TestA/x_y", selector: "scratch/a TestA"},
		{name: "scratch/a.TestA/z", selector: "scratch/a TestA"},
		{name: "scratch/a.TestA/gone", selector: "scratch/a TestA"},
		{name: "scratch/a.TestC", selector: "scratch/a TestC"},
	}
	var all []result
	m := goModule{dir: root, args: []string{"test", "-json"}, environment: os.Environ()}
	if err := m.runRows(rows, collect(&all)); err != nil {
		t.Fatal(err)
	}
	if count(all, passed) != 3 || count(all, failed) != 2 {
		t.Errorf("TestA and two subtests pass, two rows are missed: %+v", all)
	}
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func collect(into *[]result) func(result) { return func(r result) { *into = append(*into, r) } }

func count(all []result, v verdict) (n int) {
	for _, r := range all {
		if r.verdict == v {
			n++
		}
	}
	return n
}

// scratch is a folder with these files, by path, and a go.mod.
func scratch(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module scratch\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// module runs the tests of a Go module with one test file.
func module(t *testing.T, test string) ([]result, error) {
	t.Helper()
	dir := scratch(t, map[string]string{"a_test.go": "package scratch\n" + test})
	var all []result
	err := goTest(dir, []string{"test", "-json", "./..."}, os.Environ(), collect(&all))
	return all, err
}

func TestGoResults(t *testing.T) {
	all, err := module(t, `import "testing"
func TestGood(t *testing.T) {}
func TestBad(t *testing.T) { t.Error("no") }
func TestLacking(t *testing.T) { t.Skip("needs promtool: not on PATH") }
`)
	if err != nil || count(all, passed) != 1 || count(all, failed) != 1 || count(all, skipped) != 1 {
		t.Fatalf("%v: %+v", err, all)
	}
	for _, r := range all {
		if r.verdict == skipped && missingComponent(r.reason) != "promtool" {
			t.Errorf("lacks %q", missingComponent(r.reason))
		}
	}
	if summarize(all, time.Second) == 0 {
		t.Error("a failure must fail the run")
	}
}

func TestWhatDoesNotCompileFails(t *testing.T) {
	all, err := module(t, "nonsense")
	if err == nil && count(all, failed) == 0 {
		t.Errorf("no failure in %+v", all)
	}
}

func TestAPanicFails(t *testing.T) {
	all, err := module(t, "import \"testing\"\nfunc TestA(t *testing.T) { panic(1) }\n")
	if err == nil && count(all, failed) == 0 {
		t.Errorf("no failure in %+v", all)
	}
}

func TestNothingPassedIsAFailure(t *testing.T) {
	if summarize(nil, 0) == 0 || summarize([]result{{verdict: skipped}}, 0) == 0 || summarize([]result{{}}, 0) != 0 {
		t.Error("a run is good when something passed and nothing failed")
	}
}

func TestJUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "junit.xml")
	text := `<testsuites><testsuite><testcase classname="t" name="a"/><testcase classname="t" name="b"><failure message="x"/></testcase>
<testcase classname="t" name="c"><error message="y"/></testcase>
<testcase classname="t" name="d"><skipped message="needs meridian: run make build"/></testcase></testsuite></testsuites>`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var all []result
	failures, err := readJUnit(path, collect(&all))
	if err != nil || failures != 2 || count(all, passed) != 1 || count(all, skipped) != 1 {
		t.Errorf("%v, %d failures: %+v", err, failures, all)
	}
	if got := missingComponent(all[3].reason); got != "meridian" {
		t.Errorf("lacks %q", got)
	}
}

func TestCXXLines(t *testing.T) {
	var all []result
	if failures := readLines("PASS one\nnoise\nFAIL two: it broke\n", collect(&all)); failures != 1 || len(all) != 2 {
		t.Errorf("%d failures: %+v", failures, all)
	}
}

func TestRequiredComponents(t *testing.T) {
	t.Setenv("MERIDIAN_REQUIRE", "a, cc")
	var all []result
	lack(collect(&all), "x", "cc", "gone")
	lack(collect(&all), "y", "c", "gone")
	if all[0].verdict != failed || all[1].verdict != skipped {
		t.Errorf("%+v", all)
	}
}

func TestUnknownComponentsAreRefused(t *testing.T) {
	components, err := readComponents(scratch(t, map[string]string{componentsList: "c++: a compiler\ncc: another\n"}))
	if err != nil {
		t.Fatal(err)
	}
	for demand, good := range map[string]bool{"": true, "cc": true, "cc, c++": true, "gcc": false, "cc,c": false, "another": false} {
		t.Setenv("MERIDIAN_REQUIRE", demand)
		if err := checkDemands(components); (err == nil) != good {
			t.Errorf("%q: %v", demand, err)
		}
	}
}

// Go looks for gcc where CC names no other compiler.
func TestTheRaceDetectorGetsTheCompilerThatIsThere(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	if got := raceEnvironment(); got != nil {
		t.Errorf("without a compiler: %v", got)
	}
	clang := filepath.Join(bin, "clang")
	if err := os.WriteFile(clang, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := raceEnvironment(), []string{"CGO_ENABLED=1", "CC=" + clang, "GORACE=atexit_sleep_ms=10"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestALongLineIsRead(t *testing.T) {
	all, err := module(t, `import ("strings"; "testing"; "fmt")
func TestLoud(t *testing.T) { fmt.Println(strings.Repeat("x", 20<<20)) }
`)
	if err != nil || count(all, passed) != 1 {
		t.Errorf("%v: %d results", err, len(all))
	}
}

// A race is seen everywhere but there, and both parts of a module are run.
func TestOnlyPureRoomsAreUnraced(t *testing.T) {
	for path, want := range map[string]bool{"meridian": false, "meridian/kv": true, "meridian/keep/store/master": true, "meridian/keep/store/owner": false, "meridian/move/agent": false, "meridian/kv/x": false} {
		if isUnraced(path) != want {
			t.Errorf("%s is run without the race detector: %v", path, !want)
		}
	}
	race := raceEnvironment()
	if race == nil {
		t.Skip("needs cc: no C compiler on PATH")
	}
	root := scratch(t, map[string]string{
		"kv/a_test.go": `package kv
import "testing"
func TestOne(t *testing.T) { n := 0; done := make(chan bool); go func() { n++; close(done) }(); n++; <-done }
`,
		"agent/a_test.go": `package agent
import "testing"
func TestTwo(t *testing.T) { n := 0; done := make(chan bool); go func() { n++; close(done) }(); n++; <-done }
`,
	})
	var all []result
	m := goModule{dir: root, args: []string{"test", "-json"}, environment: append(os.Environ(), race...), race: true}
	if err := m.run(collect(&all)); err != nil {
		t.Fatal(err)
	}
	if count(all, passed) != 1 || count(all, failed) < 1 || all[0].name != "scratch/kv.TestOne" {
		t.Errorf("a race in kv and one in agent: %+v", all)
	}
}

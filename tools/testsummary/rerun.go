package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Where MERIDIAN_RERUN is set, as in continuous integration, a test that failed
// is run once more, by itself, after all others. A machine that stood still for
// seconds is not the code's fault; a test that passes then is counted as
// unsteady, and the summary shows its first failure, so that it is mended. Without
// the variable a failure is a failure.
const rerunVariable = "MERIDIAN_RERUN"

// accidents is how many tests of a suite may fail by accident. More have a cause.
// They come together: while a machine stands still, every test that runs does.
const accidents = 8

// neverForgiven are failures that no machine is to blame for. Tests call wrong
// bytes, tokens and answers wrong.
var neverForgiven = []string{"DATA RACE", "race detected", "panic: ", "fatal error: ", "wrong"}

func isNeverForgiven(reason string) bool {
	return slices.ContainsFunc(neverForgiven, func(mark string) bool { return strings.Contains(reason, mark) })
}

func forgivable(failures []result) bool {
	if tests := selectors(failures); len(tests) == 0 || len(tests) > accidents {
		return false
	}
	for _, r := range failures {
		if r.selector == "" || isNeverForgiven(r.reason) {
			return false
		}
	}
	return true
}

// selectors are what to run to have these tests again, each once: that of a
// test of Go stands for its subtests, too.
func selectors(failures []result) []string {
	var list []string
	for _, r := range failures {
		if !slices.Contains(list, r.selector) {
			list = append(list, r.selector)
		}
	}
	return list
}

// again gives the failed tests of a suite their second run, and returns all its
// results with the verdicts as they are now.
func (s suite) again(all []result) []result {
	var failures []result
	for _, r := range all {
		if r.verdict == failed {
			failures = append(failures, r)
		}
	}
	if os.Getenv(rerunVariable) == "" || s.rerun == nil || !forgivable(failures) {
		return all
	}
	fmt.Printf("== %s, what failed once more\n", s.title)
	good, bad := make(map[string]bool), make(map[string]bool)
	err := s.rerun(failures, func(r result) {
		good[r.selector] = good[r.selector] || r.verdict == passed
		bad[r.selector] = bad[r.selector] || r.verdict != passed
	})
	if err != nil || bad[""] { // something failed that is no test
		fmt.Printf("FAIL %s, again: %v\n", s.title, err)
		return all
	}
	for i, r := range all {
		if r.verdict == failed && good[r.selector] && !bad[r.selector] {
			all[i].verdict = unsteady
		}
	}
	return all
}

var strange = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// keepUnsteady leaves the whole output of each unsteady test in a file of its own,
// which stays until that test is unsteady again.
func keepUnsteady(dir string, all []result) error {
	for _, r := range all {
		if r.verdict != unsteady {
			continue
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		name := strange.ReplaceAllString(r.name, "_")
		path := filepath.Join(dir, name[:min(len(name), 200)]+".txt")
		if err := os.WriteFile(path, []byte(cmp.Or(r.output, r.reason)+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

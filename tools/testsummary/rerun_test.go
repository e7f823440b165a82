package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// secondRun is a suite whose tests have these verdicts when they are run again.
func secondRun(verdicts map[string]verdict, err error) suite {
	return suite{title: "scratch", rerun: func(failures []result, report func(result)) error {
		for _, selector := range selectors(failures) {
			report(result{verdict: verdicts[selector], selector: selector})
		}
		return err
	}}
}

func failure(selector, reason string) result {
	return result{name: selector, verdict: failed, reason: reason, selector: selector}
}

func TestASecondRun(t *testing.T) {
	many := make([]result, accidents+1)
	for i := range many {
		many[i] = failure(fmt.Sprint(i), "slow")
	}
	for name, c := range map[string]struct {
		suite    suite
		first    []result
		unsteady int
	}{
		"passes":                  {secondRun(nil, nil), []result{failure("a", "slow"), {name: "b"}}, 1},
		"fails again":             {secondRun(map[string]verdict{"a": failed}, nil), []result{failure("a", "slow")}, 0},
		"is skipped":              {secondRun(map[string]verdict{"a": skipped}, nil), []result{failure("a", "slow")}, 0},
		"one of two passes":       {secondRun(map[string]verdict{"a": failed}, nil), []result{failure("a", "slow"), failure("b", "slow")}, 1},
		"breaks off":              {secondRun(nil, errors.New("no")), []result{failure("a", "slow")}, 0},
		"is not known":            {suite{}, []result{failure("a", "slow")}, 0},
		"has nothing to select":   {secondRun(nil, nil), []result{{name: "does not compile", verdict: failed}}, 0},
		"is not for races":        {secondRun(nil, nil), []result{failure("a", "WARNING: DATA RACE")}, 0},
		"is not for panics":       {secondRun(nil, nil), []result{failure("a", "panic: nil"), failure("b", "slow")}, 0},
		"is not for wrong tokens": {secondRun(nil, nil), []result{failure("a", "wrong tokens: [1]")}, 0},
		"breaks its package": {
			suite{rerun: func(failures []result, report func(result)) error {
				report(result{selector: failures[0].selector})
				report(result{name: "the package", verdict: failed})
				return nil
			}}, []result{failure("a", "slow")}, 0,
		},
		"is not for many at once": {secondRun(nil, nil), many, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asked := range []string{"", "1"} {
				t.Setenv(rerunVariable, asked)
				want := c.unsteady
				if asked == "" {
					want = 0
				}
				all := c.suite.again(append([]result(nil), c.first...))
				if got := count(all, unsteady); got != want || count(all, failed)+got != count(c.first, failed) {
					t.Errorf("%s=%q: %d unsteady of %+v, want %d", rerunVariable, asked, got, all, want)
				}
			}
		})
	}
}

// What fails once and passes then, in the suites as they really run: a subtest of
// Go and a parametrized test of Python.
func TestASecondRunOfRealSuites(t *testing.T) {
	t.Setenv(rerunVariable, "1")
	t.Setenv("SCRATCH", t.TempDir())
	root := scratch(t, map[string]string{
		"a/a_test.go": `package scratch
import ("os"; "testing")
func TestOnce(t *testing.T) {
	first := func(name string) bool { return os.Mkdir(os.Getenv("SCRATCH")+name, 0o700) == nil }
	t.Run("a+/b", func(t *testing.T) { if first("/bad") { t.Error("the first time") } })
	t.Run("c", func(t *testing.T) { if !first("/good") { t.Error("run again, though it was good") } }) }
func TestTwice(t *testing.T) { t.Error("always") }
func TestGood(t *testing.T) {}
`,
		"python/tests/test_a.py": `import os, pathlib, pytest
@pytest.mark.parametrize("word", ["x y", "z"])
def test_once(word):
    mark = pathlib.Path(os.environ["SCRATCH"], word)
    first = not mark.exists()
    mark.touch()
    assert word == "z" or not first
`,
	})
	verdicts := func(s suite) [4]int {
		var all []result
		if err := s.run(collect(&all)); err != nil {
			t.Fatal(err)
		}
		all = s.again(all)
		return [4]int{count(all, passed), count(all, failed), count(all, skipped), count(all, unsteady)}
	}
	// TestOnce and its subtests are three results, of which one is good at once.
	if got := verdicts(goModule{dir: root, args: []string{"test", "-json"}, environment: os.Environ()}.suite("scratch")); got != [4]int{2, 1, 0, 2} {
		t.Errorf("Go: %v", got)
	}
	python := filepath.Join("..", "..", ".venv", "bin", "python")
	python, err := filepath.Abs(python)
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		lack(func(r result) {
			if r.verdict == failed {
				t.Fatal(r.reason)
			}
			t.Skip(r.reason)
		}, t.Name(), "python-packages", err.Error())
	}
	if got := verdicts(options{root: root, python: python}.pythonSuite()); got != [4]int{1, 0, 0, 1} {
		t.Errorf("Python: %v", got)
	}
}

// A test that fails mildly does not hide a package that breaks down behind it.
func TestABrokenPackageIsNotForgiven(t *testing.T) {
	t.Setenv(rerunVariable, "1")
	all, err := module(t, `import "testing"
func TestMild(t *testing.T) { t.Error("slow") }
func TestOther(t *testing.T) { go func() { panic("elsewhere") }(); select {} }
`)
	if err != nil || count(all, failed) < 2 || (suite{rerun: func([]result, func(result)) error { t.Error("it was run again"); return nil }}).again(all) == nil {
		t.Errorf("%v: %+v", err, all)
	}
}

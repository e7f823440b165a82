package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The path of the program is what Go compares: it changes when the program does,
// and only then; even the file stays the same.
func TestTheProgramIsNamedAfterItsContent(t *testing.T) {
	o := options{root: scratch(t, map[string]string{"cmd/meridian/main.go": "package main\nfunc main() { println(1) }\n"})}
	main := filepath.Join(o.root, "cmd", "meridian", "main.go")
	build := func(text string) (string, os.FileInfo) {
		t.Helper()
		if err := os.WriteFile(main, []byte("package main\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		path, err := o.build()
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return path, info
	}
	first, before := build("func main() { println(1) }\n")
	again, after := build("func main() { println(1) }\n// A comment changes nothing.\n")
	if first != again || !os.SameFile(before, after) {
		t.Errorf("the same program is %s and %s", first, again)
	}
	changed, _ := build("func main() { println(2) }\n")
	if _, err := os.Stat(first); changed == first || err == nil {
		t.Errorf("after a change it is %s, and the older is there: %v", changed, err == nil)
	}
	if err := os.WriteFile(main, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if path, err := o.build(); err == nil {
		t.Errorf("what does not compile is at %s", path)
	}
}

// A program that is installed, or another one of its name, is seen.
func TestProgramsOnPathAreSeen(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	seen := map[string]bool{stamps([]string{"zsh", "fish"}): true}
	for _, c := range []struct{ name, text string }{{"fish", "a"}, {"zsh", "a"}, {"clang++", "a"}, {"zsh", "another"}} {
		if err := os.WriteFile(filepath.Join(bin, c.name), []byte(c.text), 0o700); err != nil {
			t.Fatal(err)
		}
		now := stamps([]string{"zsh", "fish"})
		if seen[now] || !strings.Contains(now, c.name+"="+bin) {
			t.Errorf("with another %s: %s", c.name, now)
		}
		seen[now] = true
	}
}

func TestHeadersAreTestedWhenTheyChange(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	// What it makes says how often it compiled, and fails where the header says so.
	compiler := `#!/bin/sh
echo x >> ` + bin + `/compiled
for made; do :; done
grep -q bad include/mrdn.hpp && verdict=FAIL || verdict=PASS
printf '#!/bin/sh\necho %s header\n' $verdict > "$made" && chmod +x "$made"
`
	if err := os.WriteFile(filepath.Join(bin, "g++"), []byte(compiler), 0o700); err != nil {
		t.Fatal(err)
	}
	o := options{root: scratch(t, map[string]string{"include/mrdn.hpp": "good", "testdata/mrdn/a": "1", "testdata/store/a": "1"})}
	for i, c := range []struct {
		path, text string
		fresh      bool
		compiled   int
		verdicts   string
	}{
		{"include/mrdn.hpp", "good", false, 2, "run run "},
		{"include/mrdn.hpp", "good", false, 0, "kept kept "},
		{"include/mrdn.hpp", "good", true, 2, "run run "},
		{"testdata/mrdn/a", "2", false, 1, "run kept "},
		{"include/mrdn.hpp", "bad", false, 2, "bad bad "},
		{"include/mrdn.hpp", "bad", false, 2, "bad bad "},
		{"include/mrdn.hpp", "good", false, 0, "kept kept "},
	} {
		if err := os.WriteFile(filepath.Join(o.root, c.path), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(bin, "compiled"))
		o.fresh = c.fresh
		verdicts := ""
		err := o.cxxSuite().run(func(r result) {
			verdicts += map[string]string{"0true": "kept ", "0false": "run ", "1false": "bad "}[fmt.Sprint(int(r.verdict))+fmt.Sprint(r.cached)]
		})
		compiled, _ := os.ReadFile(filepath.Join(bin, "compiled"))
		if err != nil || verdicts != c.verdicts || strings.Count(string(compiled), "x") != c.compiled {
			t.Errorf("%d: %v, %q, compiled %q; want %+v", i, err, verdicts, compiled, c)
		}
	}
}

func TestUnsteadyTestsLeaveTheirOutput(t *testing.T) {
	o := options{root: t.TempDir()}
	err := o.keep([]result{
		{name: "meridian/kv.TestA/a b", verdict: unsteady, reason: "all of it"},
		{name: "tests.test_a", verdict: unsteady, reason: "short", output: "long"},
		{name: "tests.test_b", verdict: failed, reason: "its output is in the summary"},
	})
	files, globErr := filepath.Glob(o.kept("unsteady", "*"))
	if err != nil || globErr != nil || len(files) != 2 {
		t.Fatalf("%v, %v: %v", err, globErr, files)
	}
	for name, want := range map[string]string{"meridian_kv.TestA_a_b.txt": "all of it\n", "tests.test_a.txt": "long\n"} {
		if text, err := os.ReadFile(o.kept("unsteady", name)); string(text) != want {
			t.Errorf("%s: %v, %q", name, err, text)
		}
	}
}

// The slowest package begins first, and one whose result was kept is as slow as it was.
func TestTimesAreLearnt(t *testing.T) {
	o := options{root: t.TempDir()}
	slow := []result{{pkg: "m/b", name: "m/b.TestA", took: 9e9}, {pkg: "m/b", name: "m/b.TestA/c", took: 9e9}, {pkg: "m/c", name: "m/c.TestA", took: 1e9}, {pkg: "m/c", name: "m/c.TestB", took: 9e9}}
	kept := []result{{pkg: "m/c", name: "m/c.TestA", cached: true}}
	for _, all := range [][]result{slow, kept} {
		if err := o.keep(all); err != nil {
			t.Fatal(err)
		}
	}
	packages := []string{"m/a", "m/b", "m/c"}
	readTimes(o.kept(timesFile)).sort(packages)
	if got := fmt.Sprint(packages); got != "[m/c m/b m/a]" {
		t.Errorf("they begin as %s", got)
	}
}

package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// goSuite runs the Go tests, shuffled, under the race detector where there is a
// C compiler for it. They are not vetted: make check does that, once for all.
func (o options) goSuite() suite {
	m := goModule{dir: o.root, args: []string{"test", "-json", "-vet=off", "-timeout=25m"}, environment: os.Environ(), times: readTimes(o.kept(timesFile))}
	if o.isFresh() { // Go keeps no result of a shuffled test
		m.args = append(m.args, "-shuffle=on")
	}
	if o.real {
		m.args = append(m.args, "-tags=real", "-run=^TestReal")
		return m.suite("Go, real components")
	}
	if race := raceEnvironment(); race != nil {
		m.race = true
		m.environment = append(m.environment, race...)
		return m.suite("Go")
	}
	s := m.suite("Go")
	run := s.run
	s.run = func(report func(result)) error {
		lack(report, "race detector", "cc", "no C compiler on PATH, so the tests run without it")
		return run(report)
	}
	return s
}

// unraced are the rooms that the race detector has nothing to see in: neither
// they nor their tests start goroutines. It makes what computes many times
// slower. A test in the root compares the list with what the tree has.
//
//go:embed unraced.txt
var unraced string

// goModule is how the tests of the module in dir are run.
type goModule struct {
	dir               string
	args, environment []string
	race              bool  // but for what is unraced
	times             times // the slowest packages begin first
}

func (m goModule) suite(title string) suite {
	return suite{title: title, run: m.run, rerun: m.rerun}
}

// run tests the packages of the module but for that of its root.
func (m goModule) run(report func(result)) error {
	list := exec.Command("go", "list", "-f={{if ne .ImportPath .Module.Path}}{{.ImportPath}}{{end}}", "./...")
	list.Dir, list.Stderr = m.dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	packages := strings.Fields(string(out))
	m.times.sort(packages)
	if !m.race {
		return goTest(m.dir, slices.Concat(m.args, packages), m.environment, report)
	}
	plain, raced := m.args, append(slices.Clone(m.args), "-race")
	for _, importPath := range packages {
		if isUnraced(importPath) {
			plain = append(slices.Clone(plain), importPath)
		} else {
			raced = append(raced, importPath)
		}
	}
	if len(plain) > len(m.args) {
		err = goTest(m.dir, plain, m.environment, report)
	}
	return errors.Join(err, goTest(m.dir, raced, m.environment, report))
}

func isUnraced(importPath string) bool {
	_, room, _ := strings.Cut(importPath, "/")
	return slices.Contains(strings.Fields(unraced), room)
}

// rerun runs tests one after another, and what is parallel in them, too; of a
// test whose subtests failed, only those.
func (m goModule) rerun(failures []result, report func(result)) error {
	for _, selector := range selectors(failures) {
		importPath, test, _ := strings.Cut(selector, " ")
		pattern := "^" + test + "$"
		if subtests := failedSubtests(failures, importPath+"."+test+"/"); len(subtests) > 0 {
			pattern += "/^(" + strings.Join(subtests, "|") + ")$"
		}
		args := append(slices.Clone(m.args), "-count=1", "-parallel=1", "-run="+pattern)
		if m.race && !isUnraced(importPath) {
			args = append(args, "-race")
		}
		if err := goTest(m.dir, append(args, importPath), m.environment, report); err != nil {
			return err
		}
	}
	return nil
}

// failedSubtests are patterns of the names that follow prefix, up to the next level.
func failedSubtests(failures []result, prefix string) []string {
	var names []string
	for _, r := range failures {
		if rest, found := strings.CutPrefix(r.name, prefix); found {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// raceEnvironment is what the race detector needs, or nil without a C compiler.
// The compiler is named, because Go by itself would only look for gcc. A program
// under the detector sleeps for a second before it exits, so that goroutines that
// are left can still be caught; scripts run hundreds of programs, and none of them
// leaves any.
func raceEnvironment() []string {
	compiler := hasProgram(cCompilers...)
	if compiler == "" {
		return nil
	}
	return []string{"CGO_ENABLED=1", "CC=" + compiler, "GORACE=atexit_sleep_ms=10"}
}

// treeSuite runs the laws of the tree. They look at all of it, and ask other
// programs about it, so their results are never kept.
func (o options) treeSuite() suite {
	m := goModule{dir: o.root, args: []string{"test", "-json", "-vet=off", "-count=1"}, environment: os.Environ()}
	s := m.suite("Go, laws of the tree")
	s.run = func(report func(result)) error {
		return goTest(m.dir, append(slices.Clone(m.args), "."), m.environment, report)
	}
	return s
}

// toolsSuite runs the tests of the build tools, a module of their own, which look
// at files outside of it.
func (o options) toolsSuite() suite {
	return goModule{dir: o.root + "/tools", args: []string{"test", "-json", "-shuffle=on"}, environment: os.Environ()}.suite("Go, build tools")
}

type goEvent struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// goTest runs `go test -json` and reports every test, and every package that
// fails without a test to blame, such as one that does not compile.
func goTest(dir string, args, environment []string, report func(result)) error {
	command := exec.Command("go", args...)
	command.Dir, command.Env, command.Stderr = dir, environment, os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	events := goEvents{report: report, output: make(map[string]*strings.Builder), failedTests: make(map[string]int), running: make(map[string]map[string]bool), held: make(map[string][]result)}
	readErr := events.read(out)
	err = command.Wait()
	if events.failures == 0 && err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return readErr
}

// goEvents turns the events of `go test` into results.
type goEvents struct {
	report      func(result)
	output      map[string]*strings.Builder
	failedTests map[string]int             // by package
	running     map[string]map[string]bool // tests that have begun, by package
	held        map[string][]result        // by package: only its end tells whether they are of an earlier run
	tests       int
	failures    int
}

// read takes events, one a line, however long, to the end.
func (l *goEvents) read(r io.Reader) error {
	defer func() {
		for _, importPath := range sortedKeys(l.held) {
			l.release(importPath, false)
		}
	}()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var e goEvent
		switch {
		case json.Unmarshal(line, &e) == nil:
			l.take(e)
		case len(line) > 0:
			fmt.Print(string(line))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *goEvents) take(e goEvent) {
	name := e.Package
	if e.Test != "" {
		name += "." + e.Test
	}
	if e.Action == "build-output" {
		fmt.Print(e.Output)
		return
	}
	if e.Action == "run" {
		if l.running[e.Package] == nil {
			l.running[e.Package] = make(map[string]bool)
		}
		l.running[e.Package][name] = true
		return
	}
	if e.Action == "output" {
		if l.output[name] == nil {
			l.output[name] = &strings.Builder{}
		}
		l.output[name].WriteString(e.Output)
		return
	}
	verdict, final := map[string]verdict{"pass": passed, "fail": failed, "skip": skipped}[e.Action]
	if !final {
		return
	}
	text := ""
	if l.output[name] != nil {
		text = l.output[name].String()
		delete(l.output, name)
	}
	if e.Test == "" {
		l.packageDone(e, verdict, text)
		return
	}
	l.tests++
	delete(l.running[e.Package], name)
	if verdict == failed {
		l.failures++
		l.failedTests[e.Package]++
		fmt.Print(text)
	}
	top, _, _ := strings.Cut(e.Test, "/")
	r := result{name: name, verdict: verdict, selector: e.Package + " " + top, pkg: e.Package, took: seconds(e.Elapsed)}
	if verdict != passed {
		r.reason = strings.TrimSpace(text)
	}
	l.held[e.Package] = append(l.held[e.Package], r)
}

func (l *goEvents) release(importPath string, cached bool) {
	for _, r := range l.held[importPath] {
		r.cached = cached
		l.report(r)
	}
	delete(l.held, importPath)
}

func (l *goEvents) packageDone(e goEvent, v verdict, text string) {
	// Go replays the output of a package that passed, with the times of then.
	cached := strings.HasSuffix(strings.TrimSpace(text), "\t(cached)")
	l.release(e.Package, cached)
	word := map[verdict]string{passed: "ok  ", failed: "FAIL", skipped: "none"}[v]
	switch {
	case cached:
		fmt.Printf("%s %-34s  cached\n", word, e.Package)
	case v != skipped:
		fmt.Printf("%s %-34s %6.1fs\n", word, e.Package, e.Elapsed)
	}
	if v != failed {
		return
	}
	// Tests that were begun and have no end are those that a panic elsewhere, or
	// the time limit, has cut off; of those that were to come nothing is known.
	if l.failedTests[e.Package] == 0 || len(l.running[e.Package]) > 0 || isNeverForgiven(text) {
		l.failures++
		fmt.Print(text)
		l.report(result{name: e.Package, verdict: failed, reason: strings.TrimSpace(text)})
	}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

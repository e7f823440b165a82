package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
)

// coreRows are the tests of make test-core.
//
//go:embed core.txt
var coreRows string

// coreTest is a row of them.
type coreTest struct {
	components []string // that it shows
	pkg        string   // of Go, or ""
	test       string
}

func coreTests() (list []coreTest) {
	for line := range strings.Lines(coreRows) {
		switch columns := strings.Fields(line); {
		case len(columns) == 0 || columns[0] == "#":
		case len(columns) == 3 && columns[1] == "py":
			list = append(list, coreTest{components: strings.Split(columns[0], ","), test: columns[2]})
		case len(columns) == 4 && columns[1] == "go":
			list = append(list, coreTest{components: strings.Split(columns[0], ","), pkg: columns[2], test: columns[3]})
		default:
			panic(fmt.Sprintf("core.txt: %q is no row", line))
		}
	}
	return list
}

// coreSuites run them one after another: of Go each test with the subtests that
// are named, of Python all at a time, so that one set of servers serves many.
func (o options) coreSuites() []suite {
	m := goModule{dir: o.root, args: []string{"test", "-json", "-vet=off", "-timeout=25m", "-tags=real"}, environment: os.Environ()}
	ofGo, ofPython := m.suite("Go, real components in short"), o.pythonSuite()
	var rows []result
	var ids []string
	for _, c := range coreTests() {
		if c.pkg == "" {
			ids = append(ids, c.test)
			continue
		}
		importPath := "meridian/" + c.pkg
		top, _, _ := strings.Cut(c.test, "/")
		rows = append(rows, result{name: importPath + "." + c.test, selector: importPath + " " + top})
	}
	ofGo.run = func(report func(result)) error { return m.runRows(rows, report) }
	ofPython.run = o.withPython(func(report func(result)) error { return o.pytest(report, ids...) })
	return []suite{ofGo, ofPython}
}

// runRows runs what is named, and misses what was not there.
func (m goModule) runRows(rows []result, report func(result)) error {
	seen := make(map[string]bool)
	err := m.rerun(rows, func(r result) {
		seen[r.name] = true
		report(r)
	})
	for _, row := range rows {
		if err == nil && !seen[row.name] {
			report(result{name: row.name, verdict: failed, reason: "core.txt names this test, and it did not run"})
		}
	}
	return err
}

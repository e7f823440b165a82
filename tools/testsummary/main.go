// Command testsummary runs Meridian's test suites, Go, Python and C++, and ends with
// one summary: what passed, what failed, and what was skipped for lack of which
// component. `make test`, `make test-core` and `make test-real` are this program.
//
//	go test -json ──┐
//	pytest --junit ─┼──► result ──► once more, if asked ──► N passed, N failed, N skipped
//	C++ PASS/FAIL ──┘
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// result is one test. Skipped ones name the component they lack, where they do.
type result struct {
	name     string
	verdict  verdict
	reason   string
	output   string // all that a failed one said, where the reason is less
	selector string // what a suite runs to have this test again, or ""
	pkg      string // of Go, or ""
	took     time.Duration
	cached   bool // it passed earlier, and nothing it depends on has changed
}

type verdict int

const (
	passed verdict = iota
	failed
	skipped
	unsteady // failed, and passed when it was run again
)

// suite runs one kind of test and reports each as it ends.
type suite struct {
	title string
	run   func(report func(result)) error
	rerun func(failures []result, report func(result)) error // or nil
}

type options struct {
	root   string // of the repository
	python string // interpreter with pytest, or ""
	real   bool   // the tests that need real components, instead of the fast ones
	core   bool   // of those the few in core.txt
	vllm   bool   // those that need vLLM servers, and no others
	fresh  bool   // all of them, and shuffled, whether or not anything has changed
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", "..", "root of the repository")
	flag.StringVar(&o.python, "python", "", "Python interpreter that has pytest")
	flag.BoolVar(&o.real, "real", false, "run the tests of real components")
	flag.BoolVar(&o.core, "core", false, "run the few tests that show whether a real component is broken")
	flag.BoolVar(&o.vllm, "vllm", false, "run the tests of vLLM servers")
	flag.BoolVar(&o.fresh, "fresh", false, "run every test, shuffled, and not only what may have changed since it passed")
	flag.Parse()
	start := time.Now()
	if err := o.prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(2)
	}
	var all []result
	var spent []string
	for _, s := range suites(o) {
		fmt.Printf("== %s\n", s.title)
		begun := time.Now()
		var own []result
		err := s.run(func(r result) { own = append(own, r) })
		if err != nil {
			own = append(own, result{name: s.title, verdict: failed, reason: err.Error()})
			fmt.Printf("FAIL %s: %v\n", s.title, err)
		}
		all = append(all, s.again(own)...)
		spent = append(spent, fmt.Sprintf("%s %s", s.title, rounded(time.Since(begun))))
	}
	status := summarize(all, time.Since(start), spent...)
	if err := o.keep(all); err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		status = 2
	}
	os.Exit(status)
}

// keep leaves what the next run, or who mends a test, may use.
func (o options) keep(all []result) error {
	if !o.needsMore() {
		t := readTimes(o.kept(timesFile))
		t.learn(all)
		if err := t.write(o.kept(timesFile)); err != nil {
			return err
		}
	}
	return keepUnsteady(o.kept("unsteady"), all)
}

func (o *options) prepare() error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	o.root = root
	components, err := readComponents(root)
	if err != nil {
		return err
	}
	if err := checkDemands(components); err != nil {
		return err
	}
	return o.showInputs(components)
}

func suites(o options) []suite {
	switch {
	case o.core:
		return o.coreSuites()
	case o.vllm:
		return []suite{o.pythonSuite()}
	case o.real:
		return []suite{o.goSuite(), o.pythonSuite()}
	}
	return []suite{o.treeSuite(), o.goSuite(), o.pythonSuite(), o.toolsSuite(), o.cxxSuite()}
}

// summarize prints the one summary and returns the exit status. Its last line
// is the plain "N passed, N failed, N skipped". What was spent is said suite by suite.
func summarize(all []result, took time.Duration, spent ...string) int {
	counts := make(map[verdict]int)
	lacking := make(map[string][]string)
	fmt.Println("\n== summary")
	for _, r := range all {
		counts[r.verdict]++
		switch r.verdict {
		case failed:
			fmt.Printf("FAIL %s\n%s\n", r.name, indented(r.reason))
		case unsteady:
			fmt.Printf("UNSTEADY %s: it failed, and passed when it was run again\n%s\n", r.name, indented(r.reason))
		case skipped:
			component := missingComponent(r.reason)
			lacking[component] = append(lacking[component], r.name)
		}
	}
	for _, component := range sortedKeys(lacking) {
		names := lacking[component]
		if component == "" {
			fmt.Printf("do not apply: %d cases that a backend has no use for\n", len(names))
			continue
		}
		fmt.Printf("skipped for lack of %s: %s\n", component, strings.Join(names[:min(len(names), 5)], ", "))
		if more := len(names) - 5; more > 0 {
			fmt.Printf("  and %d more\n", more)
		}
	}
	printSlowest(all)
	if unchanged, packages := unchangedPackages(all); unchanged > 0 {
		fmt.Printf("%d of %d packages unchanged since they passed\n", unchanged, packages)
	}
	fmt.Printf("took %s", rounded(took))
	if len(spent) > 1 {
		fmt.Printf(": %s", strings.Join(spent, ", "))
	}
	fmt.Println()
	if n := counts[unsteady]; n > 0 {
		fmt.Printf("%d passed only when run again; what they said is in bin/tested/unsteady\n", n)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", counts[passed]+counts[unsteady], counts[failed], counts[skipped])
	if counts[failed] > 0 || counts[passed] == 0 {
		return 1
	}
	return 0
}

func rounded(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

func indented(text string) string {
	return "     " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n     ")
}

// missingComponent reads the "needs NAME: why" that internal/require and the
// Python tests write.
func missingComponent(reason string) string {
	if _, rest, found := strings.Cut(reason, "needs "); found {
		if name, _, found := strings.Cut(rest, ":"); found {
			return name
		}
	}
	return ""
}

func sortedKeys[V any](m map[string][]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// lack reports that a whole suite or property could not be had; required
// components make that a failure.
func lack(report func(result), name, component, why string) {
	r := result{name: name, verdict: skipped, reason: fmt.Sprintf("needs %s: %s", component, why)}
	if slices.Contains(demanded(), component) {
		r.verdict = failed
		r.reason += ", and MERIDIAN_REQUIRE demands it"
	}
	fmt.Printf("%s: %s\n", name, r.reason)
	report(r)
}

// demanded is what MERIDIAN_REQUIRE names.
func demanded() []string {
	return strings.Fields(strings.ReplaceAll(os.Getenv("MERIDIAN_REQUIRE"), ",", " "))
}

const componentsList = "internal/require/components.txt"

// readComponents returns the names of what a machine may lack.
func readComponents(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, componentsList))
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ": ")
		names = append(names, name)
	}
	return names, nil
}

// checkDemands refuses names that no test will ever ask for.
func checkDemands(components []string) error {
	for _, name := range demanded() {
		if !slices.Contains(components, name) {
			return fmt.Errorf("MERIDIAN_REQUIRE names %s, which is not in %s", name, componentsList)
		}
	}
	return nil
}

// Compilers that tests take, the first that is there.
var (
	cCompilers   = []string{"gcc", "clang", "cc"}
	cxxCompilers = []string{"g++", "clang++", "c++"}
)

func hasProgram(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

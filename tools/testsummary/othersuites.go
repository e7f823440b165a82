package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// pythonSuite runs pytest over python/tests.
func (o options) pythonSuite() suite {
	title := "Python"
	selection := "not real"
	switch {
	case o.core:
		title = "Python, real components in short"
	case o.vllm:
		title, selection = "Python, vLLM", "vllm"
	case o.real:
		title, selection = "Python, real components", "real"
	}
	s := suite{title: title}
	s.run = o.withPython(func(report func(result)) error { return o.pytest(report, "-m", selection) })
	s.rerun = func(failures []result, report func(result)) error {
		return o.pytest(report, selectors(failures)...)
	}
	return s
}

func (o options) withPython(run func(report func(result)) error) func(report func(result)) error {
	if o.python != "" {
		return run
	}
	return func(report func(result)) error {
		lack(report, "Python tests", "python-packages", "the environment in .venv could not be made")
		return nil
	}
}

// pytest runs what is asked for and reports every test.
func (o options) pytest(report func(result), asked ...string) error {
	dir, err := os.MkdirTemp("", "testsummary")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	junit := filepath.Join(dir, "junit.xml")
	fixed := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", "-o", "junit_logging=all", "-o", "junit_log_passing_tests=false", "--junitxml", junit}
	command := exec.Command(o.python, append(fixed, asked...)...)
	command.Dir = filepath.Join(o.root, "python")
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	runErr := command.Run()
	failures, err := readJUnit(junit, report)
	if err != nil {
		return errors.Join(runErr, err)
	}
	if runErr != nil && failures == 0 {
		return runErr
	}
	return nil
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	File    string     `xml:"file,attr"`
	Time    float64    `xml:"time,attr"`
	Failure *junitNote `xml:"failure"`
	Error   *junitNote `xml:"error"`
	Skipped *junitNote `xml:"skipped"`
	Out     string     `xml:"system-out"`
	Err     string     `xml:"system-err"`
}

type junitNote struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func readJUnit(path string, report func(result)) (failures int, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var file struct {
		Suites []struct {
			Cases []junitCase `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &file); err != nil {
		return 0, err
	}
	for _, s := range file.Suites {
		for _, c := range s.Cases {
			r := result{name: c.Class + "." + c.Name, took: seconds(c.Time)}
			if c.File != "" {
				r.selector = c.File + "::" + c.Name
			}
			switch {
			case c.Failure != nil, c.Error != nil:
				note := cmp.Or(c.Failure, c.Error)
				r.verdict, r.reason = failed, note.Message
				r.output = strings.Join([]string{note.Text, c.Out, c.Err}, "\n")
			case c.Skipped != nil:
				r.verdict, r.reason = skipped, c.Skipped.Message
			}
			if r.verdict == failed {
				failures++
			}
			report(r)
		}
	}
	return failures, nil
}

// cxxSuite compiles the tests of the headers with every warning and sanitizer on
// and reads their PASS and FAIL lines.
func (o options) cxxSuite() suite {
	return suite{title: "C++", run: func(report func(result)) error {
		compiler := hasProgram(cxxCompilers...)
		if compiler == "" {
			lack(report, "C++ tests", "c++", "no C++ compiler on PATH")
			return nil
		}
		return errors.Join(o.cxxTest(compiler, "mrdn", "c++17", report), o.cxxTest(compiler, "store", "c++20", report))
	}}
}

// cxxTest runs the test of one header over its vectors, unless it has passed with
// the same inputs: then what it said is read again.
func (o options) cxxTest(compiler, header, standard string, report func(result)) error {
	begun := time.Now()
	flags := []string{
		"-std=" + standard, "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror",
		"-fsanitize=address,undefined", "-pthread", "-I", "include", "include/meridian/test/" + header + "_test.cpp",
	}
	inputs, err := o.cxxInputs(header, stamp(compiler), fmt.Sprint(flags))
	if err != nil {
		return err
	}
	record := o.kept("cxx", header) // of when it passed: its inputs, and what it said
	if said, err := os.ReadFile(record); err == nil && strings.HasPrefix(string(said), inputs+"\n") && !o.isFresh() {
		readLines(string(said), func(r result) { r.cached = true; report(r) })
		fmt.Printf("the test of %s passed, and nothing has changed since\n", header)
		return nil
	}
	dir, err := os.MkdirTemp("", "testsummary")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, header+"_test")
	compile := exec.Command(compiler, append(flags, "-o", binary)...)
	compile.Dir = o.root
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	test := exec.Command(binary, filepath.Join("testdata", header))
	test.Dir = o.root
	out, runErr := test.CombinedOutput()
	fmt.Printf("%sthe test of %s took %s\n", out, header, rounded(time.Since(begun)))
	if failures := readLines(string(out), report); failures > 0 || runErr != nil {
		if failures > 0 {
			runErr = nil // they say it
		}
		return runErr
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		return err
	}
	return os.WriteFile(record, append([]byte(inputs+"\n"), out...), 0o600)
}

// cxxInputs is the SHA-256 of all that the test of a header depends on.
func (o options) cxxInputs(header string, others ...string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, others)
	for _, dir := range []string{"include", filepath.Join("testdata", header)} {
		err := filepath.WalkDir(filepath.Join(o.root, dir), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintln(sum, path, len(text))
			sum.Write(text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func readLines(out string, report func(result)) (failures int) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "PASS "); ok {
			report(result{name: "c++." + name})
		}
		if rest, ok := strings.CutPrefix(line, "FAIL "); ok {
			name, reason, _ := strings.Cut(rest, ":")
			failures++
			report(result{name: "c++." + name, verdict: failed, reason: strings.TrimSpace(reason)})
		}
	}
	return failures
}

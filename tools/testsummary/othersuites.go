package main

import (
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
	case o.vllm:
		title, selection = "Python, vLLM", "vllm"
	case o.real:
		title, selection = "Python, real components", "real"
	}
	s := suite{title: title}
	s.run = func(report func(result)) error {
		if o.python == "" {
			lack(report, "Python tests", "python-packages", "the environment in .venv could not be made")
			return nil
		}
		return o.pytest(report, "-m", selection)
	}
	s.rerun = func(failures []result, report func(result)) error {
		return o.pytest(report, selectors(failures)...)
	}
	return s
}

// pytest runs what is asked for and reports every test.
func (o options) pytest(report func(result), asked ...string) error {
	dir, err := os.MkdirTemp("", "testsummary")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	junit := filepath.Join(dir, "junit.xml")
	fixed := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", "--junitxml", junit}
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
}

type junitNote struct {
	Message string `xml:"message,attr"`
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
			case c.Failure != nil:
				r.verdict, r.reason = failed, c.Failure.Message
			case c.Error != nil:
				r.verdict, r.reason = failed, c.Error.Message
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
		compiler := hasProgram("g++", "clang++", "c++")
		if compiler == "" {
			lack(report, "C++ tests", "c++", "no C++ compiler on PATH")
			return nil
		}
		return errors.Join(o.cxxTest(compiler, "mrdn", "c++17", report), o.cxxTest(compiler, "store", "c++20", report))
	}}
}

// cxxTest runs the test of one header over its vectors.
func (o options) cxxTest(compiler, header, standard string, report func(result)) error {
	dir, err := os.MkdirTemp("", "testsummary")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	begun := time.Now()
	binary := filepath.Join(dir, header+"_test")
	compile := exec.Command(compiler, "-std="+standard, "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror",
		"-fsanitize=address,undefined", "-pthread", "-I", "include", "include/meridian/test/"+header+"_test.cpp", "-o", binary)
	compile.Dir = o.root
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	test := exec.Command(binary, filepath.Join("testdata", header))
	test.Dir = o.root
	out, runErr := test.CombinedOutput()
	fmt.Printf("%sthe test of %s took %s\n", out, header, rounded(time.Since(begun)))
	if failures := readLines(string(out), report); failures == 0 && runErr != nil {
		return runErr
	}
	return nil
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

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"meridian/tools/internal/licence"
)

// A Report holds one section per kind of dependency, and everything that is wrong with any of them.
type Report struct {
	Sections []Section `json:"sections"`
	Failures []string  `json:"failures"`
}

// A Section lists dependencies that are judged alike.
type Section struct {
	Title string `json:"title"`
	// Skipped says why the section could not be checked; empty when it was.
	Skipped      string       `json:"skipped,omitempty"`
	Dependencies []Dependency `json:"dependencies"`
}

// A Dependency is a module or package and the verdict on its licence.
type Dependency struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Licence is an SPDX expression; "unknown" when it was not recognised.
	Licence string `json:"licence"`
	// Problem is why the dependency is refused; empty when it is allowed.
	Problem string `json:"problem,omitempty"`
}

const unknown = "unknown"

func newDependency(name, version, expression string, verdict error) Dependency {
	d := Dependency{Name: name, Version: version, Licence: expression}
	if d.Licence == "" {
		d.Licence = unknown
	}
	if verdict != nil {
		d.Problem = fmt.Sprintf("%v; %s", verdict, remedy(verdict))
	}
	return d
}

func remedy(verdict error) string {
	switch {
	case errors.Is(verdict, licence.ErrRefused):
		return "use another package, or, if the licence can be honoured in an Apache-2.0 product, " +
			"add it with the reason to the table in tools/internal/licence/policy.go"
	case errors.Is(verdict, licence.ErrUnknown):
		return "read its licence: teach tools/internal/licence/text.go to recognise the text, or use another package"
	}
	return "install what python/pyproject.toml requires into .venv, then check again"
}

func newReport(sections ...Section) *Report {
	report := &Report{Sections: sections, Failures: []string{}}
	for _, section := range sections {
		for _, d := range section.Dependencies {
			if d.Problem != "" {
				report.Failures = append(report.Failures, strings.TrimSpace(d.Name+" "+d.Version)+": "+d.Problem)
			}
		}
	}
	return report
}

func (r *Report) print(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	total := 0
	for _, section := range r.Sections {
		total += len(section.Dependencies)
		if section.Skipped != "" {
			fmt.Fprintf(table, "%s: skipped: %s\n", section.Title, section.Skipped)
			continue
		}
		fmt.Fprintf(table, "%s: %d\n", section.Title, len(section.Dependencies))
		for _, d := range section.Dependencies {
			fmt.Fprintf(table, "  %s\t%s\t%s\n", d.Name, d.Version, d.Licence)
		}
	}
	for _, failure := range r.Failures {
		fmt.Fprintf(table, "FAIL %s\n", failure)
	}
	if len(r.Failures) == 0 {
		fmt.Fprintf(table, "licences: all %d allowed\n", total)
	} else {
		fmt.Fprintf(table, "licences: %d of %d refused\n", len(r.Failures), total)
	}
	return table.Flush()
}

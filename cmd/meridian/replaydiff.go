package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"meridian/prove/replay/report"
)

type replayDiff struct {
	A        string `arg:"" placeholder:"A" help:"A report.json, or its directory: what was."`
	B        string `arg:"" placeholder:"B" help:"Another: what is to be judged."`
	All      bool   `help:"Also show what did not change, and facts that have no merit."`
	JSON     bool   `help:"Print everything as one JSON object."`
	FailLoss bool   `help:"Fail if B loses anything."`
}

func (c *replayDiff) Help() string {
	return "Policies and loads that both reports have are compared, metric by metric. If both had the same requests, differences are those of each seed; else each side " +
		"scatters by itself, and more is even. WIN and LOSS stand only where the interval of the difference excludes zero."
}

func (c *replayDiff) Run(std *stdio) error {
	a, err := readReport(c.A)
	if err != nil {
		return err
	}
	b, err := readReport(c.B)
	if err != nil {
		return err
	}
	compared := report.Compare(a, b)
	if len(compared.Changes) == 0 {
		return invalid("compare reports of the same policies and loads", "%s and %s have no policy and load in common", c.A, c.B)
	}
	if c.JSON {
		err = compared.WriteJSON(std.out)
	} else {
		err = compared.WriteMarkdown(std.out, c.All)
	}
	if lost := compared.Count(report.Loss); err == nil && c.FailLoss && lost > 0 {
		return &failure{err: fmt.Errorf("%d comparisons are lost by %s", lost, c.B), status: exitFailure}
	}
	return err
}

// readReport reads a report.json, named by itself or by its directory.
func readReport(path string) (*report.Report, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "report.json")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := report.Read(f)
	if errors.Is(err, report.ErrFile) {
		return nil, &failure{err: fmt.Errorf("%s: %w", path, err), hint: "`meridian replay --out DIR` writes one", status: exitInvalid}
	}
	return r, err
}

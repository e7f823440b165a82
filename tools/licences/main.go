// Command licences checks the licence of everything Meridian ships or tests with: the Go modules linked into the
// program, those that only the tests need, and the Python packages that the wheel requires.
//
//	go run ./licences [-json] [package]
//
// It exits with 1 when a licence is unknown or not allowed, and says of each what to do.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"meridian/tools/internal/command"
)

func main() {
	asJSON := flag.Bool("json", false, "print the report as JSON")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: licences [-json] [package, by default ./cmd/meridian]")
		flag.PrintDefaults()
	}
	flag.Parse()
	program := "./cmd/meridian"
	switch flag.NArg() {
	case 0:
	case 1:
		program = flag.Arg(0)
	default:
		flag.Usage()
		os.Exit(2)
	}
	ok, err := run(context.Background(), program, *asJSON, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, program string, asJSON bool, out io.Writer) (ok bool, err error) {
	toolsModule, err := command.Command{Args: []string{"go", "env", "GOMOD"}}.Line(ctx)
	if err != nil {
		return false, err
	}
	root := filepath.Dir(filepath.Dir(toolsModule))
	report, err := check(ctx, root, program)
	if err != nil {
		return false, err
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = report.print(out)
	}
	return len(report.Failures) == 0, err
}

func check(ctx context.Context, root, program string) (*Report, error) {
	linked, tests, err := goSections(ctx, root, program)
	if err != nil {
		return nil, err
	}
	python, err := pythonSection(filepath.Join(root, "python", "pyproject.toml"), filepath.Join(root, ".venv"))
	if err != nil {
		return nil, err
	}
	return newReport(linked, tests, python), nil
}

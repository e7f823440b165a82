// Package command runs other programs and turns what they print into results and readable errors.
package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A Command is a program to run. Env is added to the environment of this process and wins over it.
type Command struct {
	Dir  string
	Env  []string
	Args []string
}

// Output runs c and returns its standard output. The error of a failed run ends with what it wrote to standard error.
func (c Command) Output(ctx context.Context) ([]byte, error) {
	process := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	process.Dir = c.Dir
	process.Env = append(os.Environ(), c.Env...)
	var stdout, stderr bytes.Buffer
	process.Stdout, process.Stderr = &stdout, &stderr
	if err := process.Run(); err != nil {
		complaint := strings.TrimSpace(stderr.String())
		if complaint == "" {
			complaint = strings.TrimSpace(stdout.String())
		}
		if complaint != "" {
			complaint = "\n" + complaint
		}
		return nil, fmt.Errorf("%s: %w%s", strings.Join(c.Args, " "), err, complaint)
	}
	return stdout.Bytes(), nil
}

// Line runs c and returns its standard output without surrounding white space.
func (c Command) Line(ctx context.Context) (string, error) {
	output, err := c.Output(ctx)
	return strings.TrimSpace(string(output)), err
}

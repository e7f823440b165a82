package serving

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"meridian/prove/bench"
)

// benchAgent is an agent in a process of its own, without a directory, for engines of this host.
type benchAgent struct {
	process *bench.Process
	program string // Meridian
	state   string // a folder, which goes with the agent
}

const agentName = "bench"

// openAgent starts an agent of a program, of this one where that is empty, and waits until it
// serves. The caller closes it.
func openAgent(ctx context.Context, program string, environment []string) (a *benchAgent, err error) {
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	state, err := os.MkdirTemp("", "mrd-bench-") // short enough for a socket's address
	if err != nil {
		return nil, err
	}
	a = &benchAgent{program: program, state: state}
	a.process, err = bench.StartProcess("the agent", []string{
		program, "agent", "--state", state, "--name", agentName, "--listen", "127.0.0.1:0", "--metrics", "", "--no-directory",
	}, environment)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	line, err := a.process.Line(ctx)
	if err == nil && !strings.Contains(string(line), "ready") {
		err = fmt.Errorf("the agent says %q", line)
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *benchAgent) close() (err error) {
	if a.process != nil {
		err = stopServing(a.process)
	}
	return errors.Join(err, os.RemoveAll(a.state))
}

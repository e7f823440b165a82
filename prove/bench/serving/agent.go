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
	bench.Opened
	process *bench.Process
	program string // Meridian
	state   string // a folder
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
	a = &benchAgent{program: program}
	if err := a.start(ctx, environment); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *benchAgent) start(ctx context.Context, environment []string) (err error) {
	if a.state, err = a.Folder(""); err != nil { // short enough for a socket's address
		return err
	}
	a.process, err = a.Server("the agent", []string{
		a.program, "agent", "--state", a.state, "--name", agentName, "--listen", "127.0.0.1:0", "--metrics", "", "--no-directory",
	}, environment)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	line, err := a.process.Line(ctx)
	if err == nil && !strings.Contains(string(line), "ready") {
		err = fmt.Errorf("the agent says %q", line)
	}
	return err
}

func (a *benchAgent) close() error { return a.CloseWithin(time.Minute) }

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"meridian/prove/bench/record"
	"meridian/run/cell"
)

type recordCommand struct {
	Out   string        `required:"" placeholder:"FILE" help:"Where requests are written, a line each; - is standard output."`
	Admin string        `placeholder:"URL" help:"The gateway's admin listener (default: that of the cell which up runs)."`
	State string        `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory of the cell (default: agent.state_dir of the configuration)."`
	For   time.Duration `placeholder:"TIME" help:"How long to record, such as 90s or 8h (default: until Ctrl-C)."`
	Past  bool          `help:"Begin with the requests that the gateway still remembers."`
	Label string        `placeholder:"TEXT" help:"What the file says that it is."`
}

func (c *recordCommand) Help() string {
	return "Writes down the workload of a running gateway: when requests came, how long prompts, thoughts and answers were, which prompts begin alike and which requests " +
		"are of one sender. What was said is in none of it: senders and prompts are told apart by numbers that mean nothing elsewhere. `meridian replay` and " +
		"`meridian load` take the file as --workload; docs/workloads.md has its schema."
}

func (c *recordCommand) Run(std *stdio, all *commands) error {
	admin, err := adminOf(c.Admin, c.State, std, all)
	if err != nil {
		return err
	}
	if c.For < 0 {
		return invalid("name a time, such as 90s", "--for %v is negative", c.For)
	}
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	operator, err := adminClient(loaded.Config)
	if err != nil {
		return err
	}
	ctx, stop := untilStopped()
	defer stop()
	options := record.Options{Admin: admin, HTTP: operator, For: c.For, Past: c.Past, Label: c.Label, Progress: recordProgress(std.err)}
	var summary record.Summary
	write := func(w io.Writer) error {
		var err error
		summary, err = record.Run(ctx, options, w)
		return err
	}
	if c.Out == "-" {
		err = write(std.out)
	} else {
		err = writeAsItComes(c.Out, write)
	}
	endLine(std.err)
	if err != nil {
		return unwritable(c.Out, err)
	}
	_, err = fmt.Fprintf(std.err, "recorded %s\n", summary)
	return err
}

// adminOf is the listener of a gateway that was named, or the cell's.
func adminOf(named, state string, std *stdio, all *commands) (string, error) {
	if named != "" {
		return named, nil
	}
	dir, err := stateDir(state, std, all)
	if err != nil {
		return "", err
	}
	r, err := cell.ReadRecord(dir)
	if errors.Is(err, cell.ErrNoCell) || (err == nil && r.Admin == "") {
		err = fmt.Errorf("%w with the state directory %s", cell.ErrNoCell, dir)
		return "", &failure{err: err, hint: "`meridian up` starts one; --admin names the admin listener of another gateway", status: exitFailure}
	}
	return r.Admin, err
}

// writeAsItComes writes a file from its beginning: a recording that is broken
// off leaves what it had.
func writeAsItComes(path string, write func(io.Writer) error) error {
	const mode = 0o600 // when who asked for how much is for this user alone
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func recordProgress(w io.Writer) func(record.Summary) {
	if !onTerminal(w) {
		return nil
	}
	return func(s record.Summary) { fmt.Fprintf(w, "\r\x1b[K%s", s) }
}

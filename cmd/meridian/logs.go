package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"meridian/run/cell"
)

type logsCommand struct {
	Parts   []string      `arg:"" optional:"" name:"part" help:"Parts of the cell, such as gateway or decode-0 (default: all)."`
	State   string        `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory (default: agent.state_dir of the configuration)."`
	Follow  bool          `short:"f" help:"Go on with what is written, until Ctrl-C."`
	Lines   *int          `short:"n" placeholder:"N" help:"How many lines of each part, of what there is; --lines=-1 for all (default: 50, with --since and --request all)."`
	Since   time.Duration `placeholder:"TIME" help:"Only what was written in the last so much time, such as 10m."`
	Request string        `placeholder:"ID" help:"Only lines about this request or transfer, of every process, by its id, by how that begins, or by what a client called its request (X-Request-Id)."`
	JSON    bool          `help:"Print one JSON object a line."`
}

// usualLines is how many of each part are shown where nothing is asked for.
const usualLines = 50

func (c *logsCommand) Help() string {
	return "Shows what the parts of a cell have said, merged by time. Logs stay when the cell has ended, until the one after the next."
}

func (c *logsCommand) Run(std *stdio, all *commands) error {
	dir, err := stateDir(c.State, std, all)
	if err != nil {
		return err
	}
	ctx, cancel := untilStopped()
	defer cancel()
	o := cell.LogOptions{StateDir: dir, Parts: c.Parts, Last: usualLines, Request: c.Request, Follow: c.Follow}
	if c.Since > 0 {
		o.Since = time.Now().Add(-c.Since)
	}
	switch {
	case c.Lines != nil:
		o.Last = *c.Lines
	case c.Since > 0 || c.Request != "":
		o.Last = -1
	}
	o.Cut = func(part string, lines int) {
		fmt.Fprintf(std.err, "%d earlier lines of %s are left out; --lines=-1 shows all\n", lines, part)
	}
	err = cell.Logs(ctx, o, func(l cell.Line) error {
		if c.JSON {
			return std.writeJSON(l)
		}
		_, err := fmt.Fprintln(std.out, logLine(l, std.terminal))
		return err
	})
	switch {
	case errors.Is(err, cell.ErrAmbiguous):
		return invalid("say more of it", "%w", err)
	case errors.Is(err, cell.ErrShort):
		return invalid("say more of it; `meridian explain` lists the last requests", "%w", err)
	}
	return err
}

func logLine(l cell.Line, colour bool) string {
	name := fmt.Sprintf("%-14s", l.Part)
	if colour {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(l.Part)) // hashes take everything
		const first, colours = 31, 6      // of the terminal: red to cyan
		name = fmt.Sprintf("\x1b[%dm%s\x1b[0m", first+hash.Sum32()%colours, name)
	}
	return fmt.Sprintf("%s %s %s", l.Time.Local().Format("15:04:05.000Z07:00"), name, printable(l.Words()))
}

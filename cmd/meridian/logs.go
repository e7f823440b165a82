package main

import (
	"fmt"
	"hash/fnv"
	"regexp"

	"meridian/cell"
)

type logsCommand struct {
	Parts  []string `arg:"" optional:"" name:"part" help:"Parts of the cell, such as gateway or decode-0 (default: all)."`
	State  string   `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory (default: agent.state_dir of the configuration)."`
	Follow bool     `short:"f" help:"Go on with what is written, until Ctrl-C."`
	Lines  int      `short:"n" default:"50" help:"How many lines of each part, of what there is; -1 for all (default: ${default})."`
	JSON   bool     `help:"Print one JSON object a line."`
}

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
	return cell.Logs(ctx, cell.LogOptions{StateDir: dir, Parts: c.Parts, Last: c.Lines, Follow: c.Follow}, func(l cell.Line) error {
		if c.JSON {
			return std.writeJSON(l)
		}
		_, err := fmt.Fprintln(std.out, logLine(l, std.terminal))
		return err
	})
}

// ownTime is the time that a part wrote itself, which the log repeats.
var ownTime = regexp.MustCompile(`^time=\S+ `)

func logLine(l cell.Line, colour bool) string {
	name := fmt.Sprintf("%-14s", l.Part)
	if colour {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(l.Part)) // hashes take everything
		const first, colours = 31, 6      // of the terminal: red to cyan
		name = fmt.Sprintf("\x1b[%dm%s\x1b[0m", first+hash.Sum32()%colours, name)
	}
	return fmt.Sprintf("%s %s %s", l.Time.Local().Format("15:04:05.000"), name, printable(ownTime.ReplaceAllString(l.Text, "")))
}

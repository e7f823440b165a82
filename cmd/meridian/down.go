package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"meridian/run/cell"
)

type downCommand struct {
	State   string        `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory (default: agent.state_dir of the configuration)."`
	Timeout time.Duration `default:"75s" help:"How long requests may take to end before the cell is killed (default: ${default})."`
	JSON    bool          `help:"Print one JSON object."`
}

func (c *downCommand) Help() string {
	return "Stops the cell that `meridian up` runs, as Ctrl-C there does, and waits until it has ended. " +
		"Of a cell whose `up` was killed it ends what is left. That no cell runs is no failure."
}

func (c *downCommand) Run(std *stdio, all *commands) error {
	dir, err := stateDir(c.State, std, all)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	ended, err := cell.Down(ctx, dir)
	if none := errors.Is(err, cell.ErrNoCell); c.JSON && (none || err == nil) {
		return std.writeJSON(map[string]any{"ran": !none, "supervisor": ended.Supervisor, "unclean": ended.Unclean, "left_behind": append([]string{}, ended.Parts...)})
	}
	if errors.Is(err, cell.ErrNoCell) {
		_, err := fmt.Fprintln(std.out, err)
		return err
	}
	if err != nil {
		return err
	}
	if ended.Supervisor != 0 {
		fmt.Fprintf(std.out, "stopped the cell of process %d\n", ended.Supervisor)
	}
	if ended.Unclean {
		fmt.Fprintln(std.out, ended.Leftovers)
	}
	return nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"meridian/cell"
	"meridian/node"
)

type statusCommand struct {
	State string `placeholder:"DIR" env:"MERIDIAN_STATE" help:"State directory (default: agent.state_dir of the configuration)."`
	JSON  bool   `help:"Print one JSON object."`
}

func (c *statusCommand) Help() string {
	return "Shows the parts of the cell that `meridian up` runs, as they are found now, and the object cache where they keep one. The exit status is 0 only if all of them are up."
}

func (c *statusCommand) Run(std *stdio, all *commands) error {
	dir, err := stateDir(c.State, std, all)
	if err != nil {
		return err
	}
	s, err := cell.ReadStatus(context.Background(), dir)
	if errors.Is(err, cell.ErrNoCell) {
		return &failure{err: err, hint: "`meridian up` starts one; `meridian store stat` tells of an object cache without one", status: exitFailure}
	}
	if err != nil {
		return err
	}
	cache := cacheOf(dir)
	if c.JSON {
		err = std.writeJSON(struct {
			*cell.Status
			Cache *node.CacheStatus `json:"cache,omitempty"`
		}{s, cache})
	} else if err = c.table(std, s); err == nil && cache != nil {
		fmt.Fprint(std.out, "\nobject cache: ")
		err = cacheTable(std, cache)
	}
	if err == nil && !s.AllUp {
		err = &failure{err: errors.New("not all of the cell is up"), hint: "`meridian logs NAME` shows what a part has said", status: exitFailure}
	}
	return err
}

// cacheTimeout is how long an agent may take to tell of the object cache.
const cacheTimeout = 2 * time.Second

// cacheOf is the object cache as one of this user's agents sees it; nil where none has a
// part in it.
func cacheOf(dir string) *node.CacheStatus {
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()
	names, err := node.Agents(dir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if status, err := node.Cache(ctx, dir, name); err == nil {
			return status
		}
	}
	return nil
}

func (c *statusCommand) table(std *stdio, s *cell.Status) error {
	fmt.Fprintf(std.out, "model %s, since %s, state in %s\n", s.Model, s.Started.Local().Format(time.DateTime), s.StateDir)
	if s.Gateway != "" {
		fmt.Fprintf(std.out, "API at %s/v1, admin at %s\n", s.Gateway, s.Admin)
	}
	if s.Supervisor == 0 {
		fmt.Fprintln(std.out, "`meridian up` is gone: nothing is started again, and `meridian down` ends what is left")
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nPART\tPID\tSTATE\tFOR\tRESTARTS\tRUNNING\tWAITING\tBLOCKS\tHAND-OFFS\tURL")
	for _, p := range s.Parts {
		state, pid := string(p.State), "–"
		if p.Process != nil {
			pid = fmt.Sprint(p.Process.PID)
		}
		if p.State == cell.Ready && !p.Up {
			state = "gone"
		}
		since := "–"
		if !p.Since.IsZero() {
			since = time.Since(p.Since).Round(time.Second).String()
		}
		running, waiting, blocks, handOffs := "", "", "", ""
		if e := p.Stats; e != nil {
			running, waiting = fmt.Sprint(e.Running), fmt.Sprint(e.Waiting)
			blocks = fmt.Sprintf("%d of %d, %d cached", e.Blocks.Total-e.Blocks.Free-e.Blocks.Cached, e.Blocks.Total, e.Blocks.Cached)
			handOffs = fmt.Sprint(e.HandOffs.Ready)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", p.Name, pid, state, since, p.Restarts, running, waiting, blocks, handOffs, oneLine(cmp.Or(p.URL, p.Metrics)))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, p := range s.Parts {
		if p.Problem != "" {
			fmt.Fprintf(std.out, "%s: %s\n", p.Name, printable(p.Problem))
		}
	}
	return nil
}

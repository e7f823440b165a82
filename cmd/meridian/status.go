package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"meridian/keep/store"
	"meridian/member/directory/etcd/embedded"
	"meridian/run/cell"
	"meridian/see/history"
)

type statusCommand struct {
	cellFlags
	Name  string        `help:"Whose certificate to show to an https directory (default: agent.name of the configuration)."`
	Watch bool          `help:"Go on and show it anew every so often, until Ctrl-C; what is no terminal gets one after the other."`
	Every time.Duration `default:"2s" help:"How often, with --watch (default: ${default})."`
	JSON  bool          `help:"Print one JSON object, or with --watch one a line."`
}

func (c *statusCommand) Help() string {
	return "Shows the parts of the cell that `meridian up` runs, as they are found now, who else belongs to the cell by its directory and its gateways, and the object cache. " +
		"Without such a cell it shows who belongs to the one that the directory knows. The exit status is 0 only if all of them are up."
}

func (c *statusCommand) Run(std *stdio, all *commands) error {
	loaded, err := all.load(std)
	if err != nil {
		return err
	}
	if err := c.fill(loaded.Config); err != nil {
		return err
	}
	ctx, cancel := untilStopped()
	defer cancel()
	if !c.Watch {
		s, err := c.read(ctx, std, all)
		if err != nil {
			return err
		}
		if err := c.show(std, s); err != nil || s.isUp() {
			return err
		}
		return &failure{err: errors.New("not all of the cell is up"), hint: "`meridian logs NAME` shows what a part has said", status: exitFailure}
	}
	if c.Every < minEvery {
		return invalid("say --every 1s or so", "--every %v is too often; %v is the least", c.Every, minEvery)
	}
	return c.watch(ctx, std, all)
}

// minEvery keeps a terminal that watches from being a load.
const minEvery = 100 * time.Millisecond

// cellStatus is what is known of a cell: of what `meridian up` runs, and of who else
// belongs to it.
type cellStatus struct {
	*cell.Status
	Others []member      `json:"others,omitempty"`
	Cache  *store.Status `json:"cache,omitempty"`
	// Problem is why the directory could not be asked for the others.
	Problem string `json:"problem,omitempty"`
}

func (s *cellStatus) isUp() bool {
	up := s.Status == nil || s.AllUp
	for _, m := range s.Others {
		up = up && m.Up
	}
	return up
}

// read looks at the cell. Where neither a record of it nor a directory is found there is
// none.
func (c *statusCommand) read(ctx context.Context, std *stdio, all *commands) (*cellStatus, error) {
	ran, err := cell.ReadStatus(ctx, c.State)
	if err != nil && !errors.Is(err, cell.ErrNoCell) {
		return nil, err
	}
	s := &cellStatus{Status: ran}
	members, problem := c.members(ctx, std, all)
	if ran == nil && (problem != nil || len(members) == 0) {
		hint := "`meridian up` starts one; `meridian store stat` tells of an object cache without one; --directory names the directory of a cell that runs without `up`"
		if len(c.Directory) > 0 && problem != nil {
			err = fmt.Errorf("%w, and its directory does not tell of one: %w", err, problem)
		}
		return nil, &failure{err: err, hint: hint, status: exitFailure}
	}
	parts := make(map[string]bool)
	if ran != nil {
		for _, p := range ran.Parts {
			parts[p.Name] = true
			for _, where := range []string{p.URL, p.Admin} {
				parts["at "+where] = where != ""
			}
		}
	}
	s.Others, s.Cache = unknownTo(parts, members), cacheOf(c.State)
	if problem != nil {
		s.Problem = problem.Error()
	}
	return s, nil
}

// members asks the directory who belongs to the cell. One that is in the state directory
// by default and has no socket there is not there.
func (c *statusCommand) members(ctx context.Context, std *stdio, all *commands) ([]member, error) {
	if _, err := os.Stat(strings.TrimPrefix(embedded.Endpoint(c.State), "unix://")); err != nil && len(c.Directory) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*askMember)
	defer cancel()
	flags := c.cellFlags
	d, err := openCellDirectory(ctx, std, all.quieter("error"), &flags, c.Name)
	if err != nil {
		return nil, err
	}
	found, err := membersOf(ctx, d)
	return found, errors.Join(err, closeSoon(d.Close))
}

// show writes it once.
func (c *statusCommand) show(std *stdio, s *cellStatus) error {
	if c.JSON {
		return std.writeJSON(s)
	}
	if s.Status != nil {
		if err := c.table(std, s.Status); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(std.out, "`meridian up` runs nothing here; the directory knows of")
	}
	if len(s.Others) > 0 {
		if s.Status != nil {
			fmt.Fprintln(std.out, "\nalso of the cell:")
		}
		if err := memberTable(std.out, s.Others); err != nil {
			return err
		}
	}
	if s.Problem != "" && s.Status != nil {
		fmt.Fprintf(std.out, "the directory could not be asked who else is there: %s\n", oneLine(s.Problem))
	}
	if s.Cache == nil {
		return nil
	}
	fmt.Fprint(std.out, "\nobject cache: ")
	return cacheTable(std, s.Cache)
}

// watch shows it anew until it is stopped. A cell that is not there yet, or not any
// more, is waited for.
func (c *statusCommand) watch(ctx context.Context, std *stdio, all *commands) error {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for {
		s, err := c.read(ctx, std, all)
		if ctx.Err() != nil {
			return nil
		}
		if !c.JSON {
			if std.terminal {
				fmt.Fprint(std.out, "\x1b[H\x1b[2J") // home, and all cleared
			}
			fmt.Fprintf(std.out, "%s\n", time.Now().Format(time.RFC3339))
		}
		switch {
		case err == nil:
			err = c.show(std, s)
		case c.JSON:
			err = std.writeJSON(map[string]string{"problem": err.Error()})
		default:
			_, err = fmt.Fprintln(std.out, printable(err.Error()))
		}
		if err != nil {
			return err
		}
		if !c.JSON && !std.terminal {
			fmt.Fprintln(std.out)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// cacheTimeout is how long an agent may take to tell of the object cache.
const cacheTimeout = 2 * time.Second

// cacheOf is the object cache as one of this user's agents sees it; nil where none has a
// part in it.
func cacheOf(dir string) *store.Status {
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()
	names, err := history.Agents(dir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if status, err := history.Get[*store.Status](ctx, history.AdminSocket(dir, name), "/cache"); err == nil {
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
	table := newTable(std.out, "\nPART\tPID\tSTATE\tFOR\tRESTARTS\tRUNNING\tWAITING\tBLOCKS\tHAND-OFFS\tURL")
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

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"meridian/keep/prefix/survey"
	"meridian/keep/store"
	"meridian/move/agent/peerquery"
	"meridian/run/node"
)

type cacheTopCommand struct {
	storeFlags
	Interval time.Duration `default:"2s" help:"How long between two looks (default: ${default})."`
	Once     bool          `help:"Look once, print, and end."`
	By       string        `enum:",tier,model,tenant" default:"" placeholder:"WHAT" help:"Only by tier, model or tenant (default: by each)."`
	JSON     bool          `help:"Print one JSON object; with --once."`
}

func (c *cacheTopCommand) Help() string {
	return "Shows what a cell keeps of prompts and what engines find: by tier of owners' memory and what is below, by model and by tenant. FOUND is of the tokens that engines asked for and did not have themselves, " +
		"since their agents started, FOUND IN the tiers in which owners had them; AGE is since when objects in memory were not used, and since when the oldest below it was written; bytes and ages by model and tenant are of what lies in memory. A model that no engine serves now is told by how keys of its pieces begin; tenants are hashes of salts, as in `meridian store ls kv/ --all-tenants`. Ctrl-C ends it.\n\n" +
		"  meridian cache top\n  meridian cache top --once --by tenant --json\n"
}

// tierRow is a tier of one owner.
type tierRow struct {
	Owner   string `json:"owner"`
	Tier    string `json:"tier"`
	Objects uint64 `json:"objects"`
	Bytes   uint64 `json:"bytes"`
	Limit   uint64 `json:"limit"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
	// In memory, since when its objects were not used; below it, since when they were written.
	MedianSeconds uint64 `json:"median_seconds,omitempty"`
	OldestSeconds uint64 `json:"oldest_seconds,omitempty"`
	Problem       string `json:"problem,omitempty"`
}

// cacheFigures are one look.
type cacheFigures struct {
	Tiers   []tierRow               `json:"tiers,omitempty"`
	Models  []survey.Use            `json:"models,omitempty"`
	Tenants []survey.Use            `json:"tenants,omitempty"`
	Silent  []peerquery.Unreachable `json:"silent,omitempty"`
}

func (c *cacheTopCommand) Run(std *stdio, all *commands) error {
	switch {
	case c.JSON && !c.Once:
		return invalid("add --once", "--json is for --once")
	case c.Interval < 100*time.Millisecond || c.Interval > time.Hour:
		return invalid("--interval 2s is usual", "an interval of %v: from 100ms to 1h", c.Interval)
	case !c.Once && !std.terminal:
		return invalid("add --once, or run it in a terminal", "standard output is no terminal, so there is no screen to draw on")
	}
	return c.visiting(std, all, 0, func(ctx context.Context, n *node.Agent) error {
		for {
			figures, err := c.figures(ctx, n)
			switch {
			case ctx.Err() != nil && !c.Once:
				return nil
			case err != nil:
				return err
			case c.JSON:
				return std.writeJSON(figures)
			}
			var screen strings.Builder
			figures.print(&screen)
			if c.Once {
				_, err := io.WriteString(std.out, screen.String())
				return err
			}
			fmt.Fprintf(std.out, "\x1b[H\x1b[2J%s", screen.String())
			select {
			case <-time.After(c.Interval):
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// topTimeout is how long one look may take: who does not answer is told of.
const topTimeout = 10 * time.Second

func (c *cacheTopCommand) figures(ctx context.Context, n *node.Agent) (*cacheFigures, error) {
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	f := &cacheFigures{}
	if c.By == "" || c.By == "tier" {
		status, err := n.Store.Status(ctx)
		if err != nil {
			return nil, err
		}
		f.Tiers = tierRows(status)
	}
	uses, err := n.Survey.Uses(ctx, n.Questions)
	if err != nil {
		return nil, err
	}
	f.Silent = uses.Silent
	for i := range f.Tiers {
		row := &f.Tiers[i]
		row.MedianSeconds, row.OldestSeconds = uses.Ages(row.Owner, row.Tier)
	}
	if c.By == "tier" {
		return f, nil
	}
	if c.By != "tenant" {
		f.Models = uses.By(func(u *survey.Use) string { return u.Model })
	}
	if c.By != "model" {
		f.Tenants = uses.By(func(u *survey.Use) string { return u.Tenant })
		for i := range f.Tenants {
			f.Tenants[i].Tenant, f.Tenants[i].Model = f.Tenants[i].Model, ""
		}
	}
	return f, nil
}

func tierRows(status *store.Status) []tierRow {
	rows := []tierRow{}
	for _, o := range status.Owners {
		rows = append(rows, tierRow{Owner: o.Name, Tier: store.Memory, Objects: o.Ready, Bytes: o.HeapUsed, Limit: o.HeapTotal, Hits: o.Hits, Misses: o.Misses, Problem: o.Problem})
		for _, t := range o.Tiers {
			row := tierRow{Owner: o.Name, Tier: t.Name, Objects: t.Objects, Bytes: t.Bytes, Limit: t.Limit, Hits: t.Hits, Misses: t.Misses}
			if t.Down {
				row.Problem = "left alone after failures"
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (f *cacheFigures) print(out io.Writer) {
	table := newTable(out, "")
	if f.Tiers != nil {
		fmt.Fprintln(table, "OWNER\tTIER\tOBJECTS\tBYTES\tOF\tHITS\tMISSES\tHIT RATE\tAGE (MEDIAN, MOST)\t")
		for _, r := range f.Tiers {
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", oneLine(r.Owner), oneLine(r.Tier), r.Objects, r.Bytes, r.Limit, r.Hits, r.Misses, partOf(r.Hits, r.Hits+r.Misses), r.age(), oneLine(r.Problem))
		}
		fmt.Fprintln(table)
	}
	uses := func(what string, rows []survey.Use, name func(*survey.Use) string) {
		if rows == nil {
			return
		}
		fmt.Fprintf(table, "%s\tFINDS\tHITS\tTOKENS ASKED\tFOUND\tHIT RATE\tFOUND IN\tIN MEMORY\tBYTES\tPINNED\tNOT USED FOR (MEDIAN, MOST)\n", what)
		for i := range rows {
			u := &rows[i]
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%d\t%v, %v\n", oneLine(name(u)), u.Finds, u.Hits, u.TokensAsked, u.TokensFound, partOf(u.TokensFound, u.TokensAsked), foundIn(u),
				u.Objects, u.Bytes, u.PinnedBytes, time.Duration(u.MedianSeconds)*time.Second, time.Duration(u.OldestSeconds)*time.Second)
		}
		fmt.Fprintln(table)
	}
	uses("MODEL", f.Models, func(u *survey.Use) string { return u.Model })
	uses("TENANT", f.Tenants, func(u *survey.Use) string { return u.Tenant })
	_ = table.Flush() // into memory
	for _, s := range f.Silent {
		fmt.Fprintf(out, "agent %s was asked and did not answer: %s\n", oneLine(s.Name), oneLine(s.Why))
	}
}

// age tells how old what a tier keeps is.
func (r *tierRow) age() string {
	most := (time.Duration(r.OldestSeconds) * time.Second).String()
	switch {
	case r.Objects == 0:
		return "–"
	case r.Tier != store.Memory:
		return "written " + most
	}
	return fmt.Sprintf("%v, %s", time.Duration(r.MedianSeconds)*time.Second, most)
}

// foundIn tells which part of what was found was in which tier.
func foundIn(u *survey.Use) string {
	var parts []string
	for _, tier := range slices.Sorted(maps.Keys(u.FoundIn)) {
		parts = append(parts, oneLine(tier)+" "+partOf(u.FoundIn[tier], u.TokensFound))
	}
	return cmp.Or(strings.Join(parts, ", "), "–")
}

func partOf(some, all uint64) string {
	if all == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(some)/float64(all))
}

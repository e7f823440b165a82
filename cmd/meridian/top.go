package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"meridian/member/directory"
	"meridian/run/config"
	"meridian/see/top"
)

type topCommand struct {
	cellFlags
	Name     string        `help:"Whose certificate to show to an https directory (default: agent.name of the configuration)."`
	Interval time.Duration `default:"1s" help:"How long between two looks (default: ${default})."`
	Once     bool          `help:"Look twice, --interval apart, print, and end."`
	JSON     bool          `help:"Print one JSON object; with --once."`
	Admin    []string      `placeholder:"URL" help:"Admin listeners of gateways to look at, in the place of what the directory names."`
}

func (c *topCommand) Help() string {
	return "Shows a cell while it works: requests and transfers a second, workers, latency by phase, memory by tier, and the slowest hand-offs. " +
		"It asks the processes that `meridian targets` lists. Keys: q quits, p pauses, s sorts by another column, r turns the order, + and - change the pace."
}

func (c *topCommand) Run(std *stdio, all *commands) error {
	if c.JSON && !c.Once {
		return invalid("add --once", "--json is for --once")
	}
	if c.Interval < 100*time.Millisecond || c.Interval > time.Hour {
		return invalid("--interval 1s is usual", "an interval of %v: from 100ms to 1h", c.Interval)
	}
	ctx, cancel := untilStopped()
	defer cancel()
	sources, done, err := c.sources(ctx, std, all)
	if err != nil {
		return err
	}
	if c.Once {
		err = c.once(ctx, std, sources)
	} else if !std.terminal {
		err = invalid("add --once, or run it in a terminal", "standard output is no terminal, so there is no screen to draw on")
	} else {
		err = top.Run(ctx, top.Options{In: std.in, Out: std.terminalOut(), Sources: sources, Interval: c.Interval, Clean: oneLine})
	}
	return errors.Join(err, done())
}

// sources says whom to ask, and what to close when that is over.
func (c *topCommand) sources(ctx context.Context, std *stdio, all *commands) (func(context.Context) ([]top.Source, error), func() error, error) {
	loaded, err := all.load(std)
	if err != nil {
		return nil, nil, err
	}
	operator, err := adminClient(loaded.Config)
	if err != nil {
		return nil, nil, err
	}
	if len(c.Admin) > 0 {
		var listed []top.Source
		for _, url := range c.Admin {
			url = strings.TrimSuffix(url, "/")
			listed = append(listed, top.Source{Kind: "gateway", Name: url, URL: url + "/metrics", Client: operator})
		}
		return func(context.Context) ([]top.Source, error) { return listed, nil }, func() error { return nil }, nil
	}
	d, err := openCellDirectory(ctx, std, all, &c.cellFlags, c.Name)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) ([]top.Source, error) { return sourcesIn(ctx, d, operator, loaded.Config) }, func() error { return closeSoon(d.Close) }, nil
}

// sourcesIn are those in the directory; operator asks gateways, who may want a key.
func sourcesIn(ctx context.Context, d directory.Directory, operator *http.Client, in *config.Config) ([]top.Source, error) {
	targets, err := listTargets(ctx, d)
	if err != nil {
		return nil, err
	}
	var all []top.Source
	for _, t := range targets {
		if t.Unreachable == "" {
			source := top.Source{Kind: t.Kind, Name: t.Name, Role: t.Role, URL: t.URL}
			if t.Kind == "gateway" {
				source.Client = clientFor(t.URL, operator, in)
			}
			all = append(all, source)
		}
	}
	return all, nil
}

// once looks twice, because rates are between two looks.
func (c *topCommand) once(ctx context.Context, std *stdio, list func(context.Context) ([]top.Source, error)) error {
	sources, err := list(ctx)
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return &failure{err: errors.New("nothing in this cell shows metrics"), hint: "`meridian targets` lists what does; is the directory the right one?", status: exitFailure}
	}
	before := top.Take(ctx, sources)
	select {
	case <-time.After(c.Interval):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	figures := top.Compare(top.Take(ctx, sources), before)
	if c.JSON {
		return std.writeJSON(figures)
	}
	_, err = fmt.Fprint(std.out, figures.Text(oneLine))
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"meridian/keep/store"
)

// ownersNamed is one owner, or all.
func ownersNamed(s *store.Store, name string) ([]string, error) {
	var names []string
	for _, o := range s.Owners() {
		names = append(names, o.Name)
	}
	switch {
	case len(names) == 0:
		return nil, store.ErrUnavailable
	case name == "":
		return names, nil
	case !slices.Contains(names, name):
		return nil, &failure{err: fmt.Errorf("no owner is called %s", oneLine(name)), hint: "`meridian store stat` lists the owners", status: exitFailure}
	}
	return []string{name}, nil
}

type storeEvictCommand struct {
	storeFlags
	timeoutFlag
	Below float64 `required:"" placeholder:"PART" help:"Part of an owner's memory that may stay in use: 0 lets everything go, 0.5 half."`
	Owner string  `placeholder:"NAME" help:"Only at this owner (default: at all)."`
	JSON  bool    `help:"Print one JSON object."`
}

func (c *storeEvictCommand) Help() string {
	return "Lets objects go, by the policy of their owner, until no more than a part of its memory is used. Pinned objects stay, and those that are being read.\n\n" +
		"  meridian store evict --below 0.5\n"
}

func (c *storeEvictCommand) Run(std *stdio, all *commands) error {
	if !(c.Below >= 0 && c.Below <= 1) {
		return invalid("0.5 is half", "--below %v: a part is between 0 and 1", c.Below)
	}
	return c.with(std, all, c.Timeout, func(ctx context.Context, s *store.Store) error {
		type left struct {
			Owner   string `json:"owner"`
			Objects uint64 `json:"objects"`
			Problem string `json:"problem,omitempty"`
		}
		rows := []left{}
		names, err := ownersNamed(s, c.Owner)
		if err != nil {
			return err
		}
		var failed error
		for _, name := range names {
			wait := newWaiting(std.err, "evicting at "+oneLine(name))
			objects, err := s.EvictUntilBelow(ctx, name, c.Below)
			wait.stop()
			row := left{Owner: name, Objects: objects}
			if err != nil {
				failed, row.Problem = errors.Join(failed, fmt.Errorf("%s: %w", oneLine(name), err)), err.Error()
			}
			if rows = append(rows, row); !c.JSON && err == nil {
				fmt.Fprintf(std.out, "%s: evicted %d objects\n", oneLine(name), objects)
			}
		}
		if c.JSON {
			failed = errors.Join(std.writeJSON(map[string]any{"evicted": rows}), failed)
		}
		return failed
	})
}

type storeScrubCommand struct {
	storeFlags
	Owner string `placeholder:"NAME" help:"Only at this owner (default: at all)."`
	JSON  bool   `help:"Print one JSON object."`
}

func (c *storeScrubCommand) Help() string {
	return "Reads every object of every tenant over the links that readers use, and checks its sums. What is broken is dropped, counted, and makes the exit status 1. Ctrl-C ends it."
}

func (c *storeScrubCommand) Run(std *stdio, all *commands) error {
	return c.with(std, all, 0, func(ctx context.Context, s *store.Store) error {
		type found struct {
			Owner   string `json:"owner"`
			Objects uint64 `json:"objects"`
			Bytes   uint64 `json:"bytes"`
			Torn    uint64 `json:"torn"`
			Gone    uint64 `json:"gone"`
			Problem string `json:"problem,omitempty"`
		}
		rows, torn := []found{}, uint64(0)
		names, err := ownersNamed(s, c.Owner)
		if err != nil {
			return err
		}
		var failed error
		for _, name := range names {
			bar := newProgress(std.err, "reading what "+oneLine(name)+" keeps", 0)
			f, err := s.Scrub(ctx, name, func(done, all uint64) {
				bar.total = all
				bar.set(done)
			})
			bar.finish()
			torn += f.Torn
			row := found{name, f.Objects, f.Bytes, f.Torn, f.Gone, ""}
			if err != nil {
				failed, row.Problem = errors.Join(failed, fmt.Errorf("%s: %w", oneLine(name), err)), err.Error()
			}
			if rows = append(rows, row); !c.JSON && err == nil {
				fmt.Fprintf(std.out, "%s: %d objects of %d bytes are whole, %d were broken and are dropped, %d left meanwhile\n", oneLine(name), f.Objects, f.Bytes, f.Torn, f.Gone)
			}
		}
		if c.JSON {
			if err := std.writeJSON(map[string]any{"owners": rows}); err != nil {
				return err
			}
		}
		if torn > 0 {
			hint := "memory or network corrupts bytes: look at the host of that owner"
			return &failure{err: errors.Join(fmt.Errorf("%d objects were broken", torn), failed), hint: hint, status: exitFailure}
		}
		return failed
	})
}

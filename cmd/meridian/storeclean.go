package main

import (
	"context"
	"fmt"

	"meridian/store"
)

// ownersNamed is one owner, or all.
func ownersNamed(s *store.Store, name string) []string {
	if name != "" {
		return []string{name}
	}
	var names []string
	for _, o := range s.Owners() {
		names = append(names, o.Name)
	}
	return names
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
		}
		rows := []left{}
		names := ownersNamed(s, c.Owner)
		if len(names) == 0 {
			return store.ErrUnavailable
		}
		for _, name := range names {
			wait := newWaiting(std.err, "evicting at "+oneLine(name))
			objects, err := s.EvictUntilBelow(ctx, name, c.Below)
			wait.stop()
			if err != nil {
				return err
			}
			if rows = append(rows, left{name, objects}); !c.JSON {
				fmt.Fprintf(std.out, "%s: evicted %d objects\n", oneLine(name), objects)
			}
		}
		if c.JSON {
			return std.writeJSON(map[string]any{"evicted": rows})
		}
		return nil
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
		}
		rows, torn := []found{}, uint64(0)
		names := ownersNamed(s, c.Owner)
		if len(names) == 0 {
			return store.ErrUnavailable
		}
		for _, name := range names {
			bar := newProgress(std.err, "reading what "+oneLine(name)+" keeps", 0)
			f, err := s.ScrubTelling(ctx, name, func(done, all uint64) {
				bar.total = all
				bar.set(done)
			})
			bar.finish()
			if err != nil {
				return err
			}
			torn += f.Torn
			if rows = append(rows, found{name, f.Objects, f.Bytes, f.Torn, f.Gone}); !c.JSON {
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
			return &failure{err: fmt.Errorf("%d objects were broken", torn), hint: hint, status: exitFailure}
		}
		return nil
	})
}

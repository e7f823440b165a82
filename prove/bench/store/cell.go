package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"meridian/prove/bench"
)

// cell is processes that a store is made of: a directory, owners of which the first
// has the master, and this one as a client.
type cell struct {
	dir       string
	processes []*bench.Process // the directory's first
	client    *party
}

func openCell(ctx context.Context, o Options, where string, owners int) (_ *cell, err error) {
	c := &cell{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(ctx))
		}
	}()
	if c.dir, err = os.MkdirTemp(o.Dir, "meridian-"); err != nil {
		return c, err
	}
	m := meeting{Where: where, Dir: filepath.Join(c.dir, "directory")}
	var directory ownAnswer
	if err = c.start(ctx, "the directory", o, ownRequest{Do: "directory", Meeting: m}, &directory); err != nil {
		return c, err
	}
	m.Dir, m.Endpoint = c.dir, directory.Endpoint
	for i := range owners {
		name := ownerName(i)
		r := ownRequest{Do: "own", Meeting: m, Name: name, Arena: arenaFactor*o.mostBytes() + arenaSpare, Master: i == 0}
		if err = c.start(ctx, name, o, r, nil); err != nil {
			return c, err
		}
	}
	c.client, err = join(ctx, "client", m)
	return c, err
}

const (
	// arenaFactor is how much more than the largest row an owner holds: nothing
	// is to be evicted.
	arenaFactor = 4
	arenaSpare  = 64 << 20
)

func ownerName(i int) string { return fmt.Sprintf("owner-%d", i) }

func (c *cell) start(ctx context.Context, title string, o Options, r ownRequest, answer any) error {
	p, err := bench.StartProcess(title, o.OwnCommand, nil)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return p.Ask(ctx, r, answer)
}

func (c *cell) pids() (all []int) {
	for _, p := range c.processes {
		all = append(all, p.PID())
	}
	return all
}

// close ends everything, the directory last.
func (c *cell) close(ctx context.Context) error {
	var errs []error
	if c.client != nil {
		errs = append(errs, c.client.close(ctx))
	}
	for i := len(c.processes) - 1; i >= 0; i-- {
		errs = append(errs, c.processes[i].Stop(ctx))
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

package store

import (
	"context"
	"fmt"
	"path/filepath"

	"meridian/keep/store"
	"meridian/prove/bench"
)

// cell is processes that a store is made of: a directory, owners of which the first
// has the master, and this one as a client.
type cell struct {
	bench.Opened
	others []int        // the processes beside this one
	store  *store.Store // the client's
}

func openCell(ctx context.Context, o Options, where string, owners int) (_ *cell, err error) {
	c := &cell{}
	defer c.Unless(ctx, &err)
	dir, err := c.Folder(o.Dir)
	if err != nil {
		return c, err
	}
	m := meeting{Where: where, Dir: filepath.Join(dir, "directory")}
	var directory ownAnswer
	if err = c.start(ctx, "the directory", o, ownRequest{Do: "directory", Meeting: m}, &directory); err != nil {
		return c, err
	}
	m.Dir, m.Endpoint = dir, directory.Endpoint
	for i := range owners {
		name := ownerName(i)
		r := ownRequest{Do: "own", Meeting: m, Name: name, Arena: arenaFactor*o.mostBytes() + arenaSpare, Master: i == 0}
		if err = c.start(ctx, name, o, r, nil); err != nil {
			return c, err
		}
	}
	client, err := join(ctx, "client", m)
	if err != nil {
		return c, err
	}
	c.Closes(client.Close)
	if c.store, err = store.Open(ctx, store.Options{Agent: client.agent, Directory: client.directory, Timeout: roundLimit}); err == nil {
		c.Closes(c.store.Close)
	}
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
	p, err := c.Start(title, o.OwnCommand, nil)
	if err != nil {
		return err
	}
	c.others = append(c.others, p.PID())
	return p.Ask(ctx, r, answer)
}

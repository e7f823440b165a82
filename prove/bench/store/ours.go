package store

import (
	"context"

	"meridian/keep/store"
)

// openOurs starts an owner in a process of its own, and a client in this one.
func openOurs(ctx context.Context, o Options, where string) (contender, error) {
	return openOwners(ctx, o, where, 1, store.PutOptions{})
}

// openPlanned is the same for several owners, to which objects go in turn.
func openPlanned(ctx context.Context, o Options, owners int, page uint32) (contender, error) {
	return openOwners(ctx, o, sameHost, owners, store.PutOptions{PageSize: page})
}

func openOwners(ctx context.Context, o Options, where string, owners int, how store.PutOptions) (contender, error) {
	c, err := openCell(ctx, o, where, owners)
	if err != nil {
		return nil, err
	}
	return &caches{
		title: oursName, others: c.others, stop: c.Close,
		client: func(context.Context) (Cache, error) { return &client{store: c.store, how: how, owners: owners}, nil },
	}, nil
}

// client is one of those that ask, of a process's store.
type client struct {
	store  *store.Store
	how    store.PutOptions
	owners int
	next   int // owner to put to
	buffer *store.Buffer
}

func (c *client) Buffer(bytes uint64) (memory []byte, err error) {
	if c.buffer, err = c.store.Buffer(bytes); err != nil {
		return nil, err
	}
	return c.buffer.Bytes(), nil
}

func (c *client) Put(ctx context.Context, key string, value []byte) error {
	if c.owners > 1 {
		c.how.Preferred = ownerName(c.next % c.owners)
		c.next++
	}
	return c.store.Put(ctx, key, value, c.how)
}

func (c *client) Get(ctx context.Context, key string, into []byte) (int, error) {
	return c.store.Get(ctx, key, into, store.GetOptions{})
}

func (c *client) Remove(ctx context.Context, key string) error {
	return c.store.Remove(ctx, key, store.RemoveOptions{})
}

func (c *client) Close(ctx context.Context) error {
	if c.buffer == nil {
		return nil
	}
	return c.buffer.Close(ctx)
}

package store

import (
	"context"
	"errors"
	"fmt"

	"meridian/prove/bench"
)

// contender is one that can do a row's work.
type contender interface {
	bench.Contender
	// load makes ready for a row: memory for every client, and the objects that
	// are to be got.
	load(ctx context.Context, row int, c Case) error
	// round does every operation of the row once. What a put has stored is gone
	// again when it returns, which does not count.
	round(ctx context.Context, round int) (Lap, error)
	// verify does a round whose results it compares.
	verify(ctx context.Context) error
	// unload removes what the row has left.
	unload(ctx context.Context) error
}

// Cache is one client of a store. Buffers for its values come from it, because
// most stores want memory that they know.
type Cache interface {
	Buffer(bytes uint64) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	// Get returns how many bytes the value has, all of which are in into.
	Get(ctx context.Context, key string, into []byte) (int, error)
	Remove(ctx context.Context, key string) error
	Close(ctx context.Context) error
}

// caches is a store that this process asks, through clients of its own.
type caches struct {
	title string
	// client opens one more; stop ends the store.
	client func(ctx context.Context) (Cache, error)
	stop   func(ctx context.Context) error
	others []int // pids

	row     int
	current Case
	clients []Cache
	memory  [][]byte // of each client
}

func (s *caches) Name() string { return s.title }
func (s *caches) PIDs() []int  { return s.others }

func (s *caches) slot(client, object int) []byte { return s.current.slot(s.memory[client], object) }

// load opens as many clients as the row has, with new memory.
func (s *caches) load(ctx context.Context, row int, c Case) error {
	if err := s.hangUp(ctx); err != nil {
		return err
	}
	s.row, s.current = row, c
	for range c.Clients {
		client, err := s.client(ctx)
		if err != nil {
			return err
		}
		s.clients = append(s.clients, client)
		memory, err := client.Buffer(c.memoryBytes())
		if err != nil {
			return fmt.Errorf("memory for a client: %w", err)
		}
		s.memory = append(s.memory, memory)
	}
	s.fill()
	if c.Op == put {
		return nil
	}
	return s.putAll(ctx, 0)
}

func (s *caches) fill() {
	for object := range s.current.Count {
		fill(s.slot(object%s.current.Clients, object), object)
	}
}

func (s *caches) putAll(ctx context.Context, round int) error {
	_, err := s.current.run(ctx, s.putter(round))
	return err
}

func (s *caches) putter(round int) func(context.Context, int, int) error {
	return func(ctx context.Context, client, object int) error {
		return s.clients[client].Put(ctx, key(s.row, round, object), s.slot(client, object))
	}
}

func (s *caches) getter(round int) func(context.Context, int, int) error {
	return func(ctx context.Context, client, object int) error {
		got, err := s.clients[client].Get(ctx, key(s.row, round, object), s.slot(client, object))
		if err == nil && uint64(got) != s.current.Object {
			err = fmt.Errorf("%w: %d bytes of %d", ErrContents, got, s.current.Object)
		}
		return err
	}
}

func (s *caches) removeAll(ctx context.Context, round int) error {
	_, err := s.current.run(ctx, func(ctx context.Context, client, object int) error {
		return s.clients[client].Remove(ctx, key(s.row, round, object))
	})
	if err != nil {
		return fmt.Errorf("removing: %w", err)
	}
	return nil
}

func (s *caches) round(ctx context.Context, round int) (Lap, error) {
	if s.current.Op == get {
		return s.current.run(ctx, s.getter(0))
	}
	// Removing is not what is measured, but it must have been done before the
	// next round wants the room.
	lap, err := s.current.run(ctx, s.putter(round))
	return lap, errors.Join(err, s.removeAll(ctx, round))
}

// verify gets everything into memory that was cleared. Of a put, everything is
// put once more for it.
func (s *caches) verify(ctx context.Context) error {
	if s.current.Op == put {
		if err := s.putAll(ctx, 0); err != nil {
			return err
		}
	}
	for _, memory := range s.memory {
		clear(memory)
	}
	if _, err := s.current.run(ctx, s.getter(0)); err != nil {
		return err
	}
	return s.current.check(func(object int) []byte { return s.slot(object%s.current.Clients, object) })
}

func (s *caches) unload(ctx context.Context) error { return s.removeAll(ctx, 0) }

func (s *caches) hangUp(ctx context.Context) error {
	var errs []error
	for _, client := range s.clients {
		errs = append(errs, client.Close(ctx))
	}
	s.clients, s.memory = nil, nil
	return errors.Join(errs...)
}

func (s *caches) Close(ctx context.Context) error { return errors.Join(s.hangUp(ctx), s.stop(ctx)) }

// turn bounds what one contender does.
func turn(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	return do(ctx)
}

// oursName is what Meridian is called among contenders.
const oursName = "meridian"

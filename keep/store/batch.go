package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"meridian/keep/store/arena"
	"meridian/keep/store/master"
	"meridian/keep/store/protocol"
)

// HasOptions say whose keys are meant.
type HasOptions struct {
	// Tenant is whose keys they are; default the store's.
	Tenant string
}

// Has reports which objects can be got. It counts as no use of them.
func (s *Store) Has(ctx context.Context, keys []string, o HasOptions) ([]bool, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	names := make([][]byte, len(keys))
	for i, key := range keys {
		if names[i], err = s.nameOf(o.Tenant, key); err != nil {
			return nil, err
		}
	}
	present := make([]bool, 0, len(keys))
	for len(names) > 0 {
		n := min(len(names), hasTogether)
		some, err := s.has(ctx, names[:n])
		if err != nil {
			return nil, err
		}
		present, names = append(present, some...), names[n:]
	}
	return present, nil
}

// hasTogether is how many keys one question names: with the longest of them it is
// still small.
const hasTogether = 512

// Run is how many of the keys, from the first on, can be got without a gap.
func (s *Store) Run(ctx context.Context, keys []string, o HasOptions) (int, error) {
	for at := 0; at < len(keys); {
		n := min(len(keys)-at, hasTogether)
		present, err := s.Has(ctx, keys[at:at+n], o)
		if err != nil {
			return 0, err
		}
		for i, is := range present {
			if !is {
				return at + i, nil
			}
		}
		at += n
	}
	return len(keys), nil
}

// has asks the master who has the keys, and those owners whether they can be got.
func (s *Store) has(ctx context.Context, names [][]byte) ([]bool, error) {
	where := &protocol.Where{Hashes: make([]uint64, len(names))}
	for i, name := range names {
		where.Hashes[i] = arena.HashKey(name)
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		present, err := s.hasOnce(ctx, names, where)
		if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, protocol.ErrMessage) {
			return present, err
		}
		if !s.pause(ctx, pause) {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

func (s *Store) hasOnce(ctx context.Context, names [][]byte, where *protocol.Where) ([]bool, error) {
	answer, err := s.askMaster(ctx, where)
	if err != nil {
		return nil, err
	}
	found, is := answer.(*protocol.Owners)
	if r, said := answer.(*protocol.Reply); said {
		return nil, errors.Join(r.Problem.Err(), master.ErrUnsettled)
	}
	if !is || len(found.Names) != len(names) {
		return nil, fmt.Errorf("%w: the master answered with %T", protocol.ErrMessage, answer)
	}
	asked := make(map[string][]int)
	for i, name := range found.Names {
		if name != "" {
			asked[name] = append(asked[name], i)
		}
	}
	present := make([]bool, len(names))
	for name, at := range asked {
		some := &protocol.Has{Names: make([][]byte, len(at))}
		for i, n := range at {
			some.Names[i] = names[n]
		}
		answer, err := s.askOwner(ctx, name, some)
		if err != nil {
			return nil, err
		}
		said, is := answer.(*protocol.Present)
		if !is || len(said.Is) != len(at) {
			return nil, fmt.Errorf("%w: %s answered with %T", protocol.ErrMessage, name, answer)
		}
		for i, n := range at {
			present[n] = said.Is[i]
		}
	}
	return present, nil
}

// together is how many operations of one batch run at a time.
const together = 16

// each calls for 0 to n-1, some at a time.
func each(n int, do func(i int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range min(n, together) {
		wait.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"meridian/member/directory"
)

// maxRanks is how many names one record holds.
const maxRanks = 1024

// readRanks is the names that have a number, which is their place, and the record's
// revision: 0 where there is none.
func readRanks(ctx context.Context, d directory.Directory) (names []string, revision directory.Revision, err error) {
	record, err := d.Get(ctx, ranksKey)
	if errors.Is(err, directory.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if err := json.Unmarshal(record.Value, &names); err != nil {
		return nil, 0, fmt.Errorf("store: the numbers of owners at %s cannot be read: %.200w", ranksKey, err)
	}
	return names, record.Revision, nil
}

// rankOf is the number of an owner's name. A name that has none gets the next; when all
// are given, that of an owner which does not run.
func rankOf(ctx context.Context, d directory.Directory, name string) (int, error) {
	for {
		names, revision, err := readRanks(ctx, d)
		if err != nil {
			return 0, err
		}
		if at := slices.Index(names, name); at >= 0 {
			return at, nil
		}
		at := len(names)
		if at < maxRanks {
			names = append(names, name)
		} else {
			if at, err = unused(ctx, d, names[:maxRanks]); err != nil {
				return 0, err
			}
			names[at] = name
		}
		if err := writeRanks(ctx, d, names, revision); err == nil {
			return at, nil
		} else if !errors.Is(err, directory.ErrExists) && !errors.Is(err, directory.ErrChanged) {
			return 0, err
		}
	}
}

// unused is the first number of an owner that does not run.
func unused(ctx context.Context, d directory.Directory, names []string) (int, error) {
	run, err := d.List(ctx, ownersPrefix)
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(names, func(name string) bool {
		return !slices.ContainsFunc(run.Records, func(r directory.Record) bool { return strings.TrimPrefix(r.Key, ownersPrefix) == name })
	})
	if at < 0 {
		return 0, fmt.Errorf("store: %d owners run, and no more can have a number; stop one that is not needed", len(names))
	}
	return at, nil
}

// writeRanks writes the names of a revision anew; 0 is none.
func writeRanks(ctx context.Context, d directory.Directory, names []string, at directory.Revision) error {
	value, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if len(value) > directory.MaxValueBytes {
		return fmt.Errorf("store: the names of %d owners have %d bytes, and %s holds %d; delete the record when no owner runs", len(names), len(value), ranksKey, directory.MaxValueBytes)
	}
	entry := directory.Entry{Key: ranksKey, Value: value}
	if at == 0 {
		_, err = d.Create(ctx, entry)
	} else {
		_, err = d.Swap(ctx, entry, at)
	}
	return err
}

// Ranked is the name that has a number, also while no owner of it runs. ErrUnavailable
// says that none ever had it.
func (s *Store) Ranked(ctx context.Context, rank int) (name string, err error) {
	for _, o := range s.Owners() {
		if o.Rank == rank {
			return o.Name, nil
		}
	}
	names, err := s.ranked.get(s.options.Clock.Now(), s.options.Lease, func() ([]string, error) {
		names, _, err := readRanks(ctx, s.options.Directory)
		return names, err
	})
	if err != nil {
		return "", fmt.Errorf("%w: who has rank %d: %w", ErrUnavailable, rank, err)
	}
	if rank < 0 || rank >= len(names) {
		return "", fmt.Errorf("%w: no owner ever had rank %d; %d have one", ErrUnavailable, rank, len(names))
	}
	return names[rank], nil
}

// ranked are the names that have a number, as the directory had them a moment ago. What
// has changed since is of an owner that runs, which the view knows.
type ranked struct {
	mu    sync.Mutex // protects the rest
	names []string
	until time.Time
}

// get is the names, which are read anew when what is known is older than a span.
func (r *ranked) get(now time.Time, span time.Duration, read func() ([]string, error)) ([]string, error) {
	r.mu.Lock()
	names, fresh := r.names, now.Before(r.until)
	r.mu.Unlock()
	if fresh {
		return names, nil
	}
	names, err := read()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names, r.until = names, now.Add(span)
	return names, nil
}

// rank is the number of an owner that runs; -1, where the directory does not name it.
func (s *Store) rank(name string) int {
	if o, err := s.owner(name); err == nil {
		return o.Rank
	}
	return -1
}

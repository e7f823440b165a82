package meta_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"meridian/member/meta"
)

// scripted is a backend that answers as a test wants it to. What a test leaves
// out is granted.
type scripted struct {
	get   func(ctx context.Context, key string) (meta.Record, error)
	list  func() (meta.Snapshot, error)
	watch func(ctx context.Context, after meta.Revision, emit func([]meta.Event) error) error
	write func(c meta.Change) (meta.Record, error)
	renew func(id meta.LeaseID) error

	mu      sync.Mutex // protects what follows
	granted meta.LeaseID
	revoked []meta.LeaseID
}

const scriptedTTL = 300 * time.Millisecond

func openScripted(t *testing.T, s *scripted, o meta.Options) meta.Directory {
	t.Helper()
	o.Backend = s
	d, err := meta.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func (s *scripted) Get(ctx context.Context, key string) (meta.Record, error) { return s.get(ctx, key) }

func (s *scripted) List(context.Context, string) (meta.Snapshot, error) { return s.list() }

func (s *scripted) Write(_ context.Context, c meta.Change) (meta.Record, error) {
	if s.write == nil {
		return meta.Record{Key: c.Key, Value: c.Value, Lease: c.Lease, Revision: 1}, nil
	}
	return s.write(c)
}

func (s *scripted) Watch(ctx context.Context, _ string, after meta.Revision, emit func([]meta.Event) error) error {
	return s.watch(ctx, after, emit)
}

func (s *scripted) Grant(context.Context, time.Duration) (meta.LeaseID, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted++
	return s.granted, scriptedTTL, nil
}

func (s *scripted) Renew(_ context.Context, id meta.LeaseID) (time.Duration, error) {
	return scriptedTTL, s.renew(id)
}

func (s *scripted) Revoke(_ context.Context, id meta.LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = append(s.revoked, id)
	return nil
}

func (s *scripted) Close(context.Context) error { return nil }

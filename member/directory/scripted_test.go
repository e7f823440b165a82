package directory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"meridian/member/directory"
)

// scripted is a backend that answers as a test wants it to. What a test leaves
// out is granted.
type scripted struct {
	get   func(ctx context.Context, key string) (directory.Record, error)
	list  func() (directory.Snapshot, error)
	watch func(ctx context.Context, after directory.Revision, emit func([]directory.Event) error) error
	write func(c directory.Change) (directory.Record, error)
	renew func(id directory.LeaseID) error

	mu      sync.Mutex // protects what follows
	granted directory.LeaseID
	revoked []directory.LeaseID
}

const scriptedTTL = 300 * time.Millisecond

func openScripted(t *testing.T, s *scripted, o directory.Options) directory.Directory {
	t.Helper()
	o.Backend = s
	d, err := directory.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func (s *scripted) Get(ctx context.Context, key string) (directory.Record, error) {
	return s.get(ctx, key)
}

func (s *scripted) List(context.Context, string) (directory.Snapshot, error) { return s.list() }

func (s *scripted) Write(_ context.Context, c directory.Change) (directory.Record, error) {
	if s.write == nil {
		return directory.Record{Key: c.Key, Value: c.Value, Lease: c.Lease, Revision: 1}, nil
	}
	return s.write(c)
}

func (s *scripted) Watch(ctx context.Context, _ string, after directory.Revision, emit func([]directory.Event) error) error {
	return s.watch(ctx, after, emit)
}

func (s *scripted) Grant(context.Context, time.Duration) (directory.LeaseID, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted++
	return s.granted, scriptedTTL, nil
}

func (s *scripted) Renew(_ context.Context, id directory.LeaseID) (time.Duration, error) {
	return scriptedTTL, s.renew(id)
}

func (s *scripted) Revoke(_ context.Context, id directory.LeaseID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = append(s.revoked, id)
	return nil
}

func (s *scripted) Close(context.Context) error { return nil }

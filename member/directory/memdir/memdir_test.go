package memdir_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/member/directory/directorytest"
	"meridian/member/directory/memdir"
)

func TestMain(m *testing.M) { directorytest.Main(m) }

func world(*testing.T) *directorytest.World {
	store := memdir.New(memdir.Options{})
	return &directorytest.World{
		TTL: time.Second,
		Open: func(t *testing.T) directorytest.Client {
			c, err := store.Open(memdir.ClientOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return directorytest.Client{Directory: c, Reach: func(r directorytest.Reach) {
				c.SetOutage(map[directorytest.Reach]memdir.Outage{
					directorytest.Through: memdir.None, directorytest.Refused: memdir.Refused, directorytest.Silent: memdir.Silent,
				}[r])
			}}
		},
		Compact: func(*testing.T) { store.Compact() },
		Stop:    func(*testing.T) { store.Stop() },
		Start:   func(*testing.T) { store.Start() },
		Wipe:    func(*testing.T) { store.Wipe() },
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	directorytest.RunSimulated(t, world)
}

func TestDirectoryAlone(t *testing.T) { directorytest.RunAlone(t, world) }

func open(t *testing.T, s *memdir.Store) *memdir.Client {
	t.Helper()
	c, err := s.Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.SetOutage(memdir.None)
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// On a clock of its own a lease is renewed at thirds of its time and, once its
// owner is cut off, ends at the moment it must.
func TestLeaseFollowsTheClock(t *testing.T) {
	clock := directorytest.NewClock()
	store := memdir.New(memdir.Options{Clock: clock})
	owner, other := open(t, store), open(t, store)
	lease, err := owner.Grant(t.Context(), directory.LeaseOptions{TTL: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Create(t.Context(), directory.Entry{Key: "a", Lease: lease}); err != nil {
		t.Fatal(err)
	}
	for round := range uint64(5) {
		until.True(t, "waiting for its time", func() bool { return clock.Timers() == 2 }) // and the store's
		clock.Advance(2*time.Second - 1)
		if got := owner.Metrics().Renewals; got != round {
			t.Fatalf("renewed %d times before its time, want %d", got, round)
		}
		clock.Advance(1)
		until.True(t, "renewed", func() bool { return owner.Metrics().Renewals == round+1 })
	}
	owner.SetOutage(memdir.Refused)
	clock.Advance(6*time.Second - 1)
	if _, err := other.Get(t.Context(), "a"); err != nil || lease.State() != directory.Held {
		t.Errorf("the lease ended before its time: %v, %v", err, lease.State())
	}
	clock.Advance(1)
	if _, err := other.Get(t.Context(), "a"); !errors.Is(err, directory.ErrNotFound) || lease.State() != directory.Doubtful {
		t.Errorf("the lease outlived its time: %v, %v", err, lease.State())
	}
}

// Mute is the outage that leaves writes in doubt: obeyed, never answered.
func TestMuteIsInDoubt(t *testing.T) {
	store := memdir.New(memdir.Options{})
	c, other := open(t, store), open(t, store)
	c.SetOutage(memdir.Mute)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Put(ctx, directory.Entry{Key: "a", Value: []byte("1")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put: %v", err)
	}
	if r, err := other.Get(t.Context(), "a"); err != nil || string(r.Value) != "1" {
		t.Errorf("the write was not obeyed: %+v, %v", r, err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	const history = 10
	store := memdir.New(memdir.Options{History: history})
	c := open(t, store)
	var last directory.Record
	for i := range 10 * history {
		var err error
		if last, err = c.Put(t.Context(), directory.Entry{Key: "a/" + strconv.Itoa(i%3), Value: []byte(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
	for after, want := range map[directory.Revision]directory.EventKind{last.Revision - history: directory.Put, 1: directory.Resync} {
		watch, err := c.Watch(t.Context(), "a/", after)
		if err != nil {
			t.Fatal(err)
		}
		if e := <-watch.Events(); e.Kind != want || e.Kind == directory.Put && e.Revision != after+1 {
			t.Errorf("resumed after %d of %d with %+v, want a %v", after, last.Revision, e, want)
		}
		watch.Close()
	}
}

// A lease with more records than the history holds ends in one revision, of
// which no watcher may see a part.
func TestOneRevisionLargerThanTheHistory(t *testing.T) {
	store := memdir.New(memdir.Options{History: 10})
	c := open(t, store)
	lease, err := c.Grant(t.Context(), directory.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := c.Put(t.Context(), directory.Entry{Key: "a/" + strconv.Itoa(i), Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
	watcher := directorytest.Observe(t, c, "a/")
	until.True(t, "watching", func() bool { return len(watcher.Records()) == 100 })
	if err := lease.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	until.True(t, "empty", func() bool { return len(watcher.Records()) == 0 })
}

package directory_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"meridian/internal/until"
	"meridian/member/directory"
	"meridian/member/directory/directorytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The first record is written but its answer is lost, the second not before
// the next attempt: both must be back once, under the new lease.
func TestPuttingBackGoesOnWhereItStopped(t *testing.T) {
	standing := make(map[string]directory.LeaseID) // touched by one call at a time: keys take turns
	lost := errors.New("the answer is lost")
	restoring := false
	var order []string
	s := &scripted{
		renew: func(id directory.LeaseID) error {
			if id == 1 {
				restoring = true
				clear(standing)
				return directory.ErrLeaseLost
			}
			return nil
		},
		write: func(c directory.Change) (directory.Record, error) {
			if under, has := standing[c.Key]; has && c.At == directory.Absent {
				return directory.Record{Key: c.Key, Lease: under}, directory.ErrExists
			}
			standing[c.Key] = c.Lease
			if restoring {
				order = append(order, c.Key)
			}
			if restoring && c.Key == "a" {
				return directory.Record{}, directory.Because(directory.ErrUnavailable, lost)
			}
			return directory.Record{Key: c.Key, Lease: c.Lease}, nil
		},
	}
	d := openScripted(t, s, directory.Options{})
	lease, err := d.Grant(t.Context(), directory.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"b", "a"} {
		if _, err := d.Create(t.Context(), directory.Entry{Key: key, Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
	until.True(t, "restored and renewed", func() bool { return d.Metrics().Renewals >= 2 })
	if err := lease.Revoke(t.Context()); err != nil { // and with that, the lease's goroutine has ended
		t.Fatal(err)
	}
	if !slices.Equal(order, []string{"a", "b"}) || standing["a"] != 2 || standing["b"] != 2 || lease.Err() != nil {
		t.Errorf("put back in the order %q, now under %v: %v", order, standing, lease.Err())
	}
}

// What is certain of a lease is counted from the question, not from the answer,
// and nothing is once it was not answered in time, lost or revoked.
func TestCertainCountsFromTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause, slow = scriptedTTL / 3, scriptedTTL / 2
		var unanswered, lost atomic.Bool
		d := openScripted(t, &scripted{renew: func(directory.LeaseID) error {
			time.Sleep(slow)
			switch {
			case lost.Load():
				return directory.ErrLeaseLost
			case unanswered.Load():
				return directory.ErrUnavailable
			}
			return nil
		}}, directory.Options{})
		lease, err := d.Grant(t.Context(), directory.LeaseOptions{OnExpiry: directory.Surrender})
		if err != nil {
			t.Fatal(err)
		}
		certain := func(when string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := lease.Certain(); got != want || (lease.State() == directory.Held) != (want > 0) {
				t.Errorf("%s: certain for %v, want %v; it is %v", when, got, want, lease.State())
			}
		}
		certain("granted", scriptedTTL)
		time.Sleep(pause + slow - 1)
		certain("before the answer", scriptedTTL-pause-slow+1)
		time.Sleep(time.Nanosecond)
		certain("after the answer", scriptedTTL-slow)
		unanswered.Store(true)
		time.Sleep(scriptedTTL - slow - 1)
		certain("at the end of its time", 1)
		time.Sleep(time.Nanosecond)
		certain("after its time", 0)
		unanswered.Store(false)
		until.True(t, "certain again", func() bool { return lease.Certain() > 0 })
		lost.Store(true)
		<-lease.Lost()
		certain("lost", 0)

		if lease, err = d.Grant(t.Context(), directory.LeaseOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := lease.Revoke(t.Context()); err != nil {
			t.Fatal(err)
		}
		certain("revoked", 0)
	})
}

// A lease that ends again while its records are put back is not lost.
func TestPuttingBackStartsOverWhenTheLeaseEndsAgain(t *testing.T) {
	s := &scripted{
		renew: func(id directory.LeaseID) error {
			if id < 3 {
				return directory.ErrLeaseLost
			}
			return nil
		},
		write: func(c directory.Change) (directory.Record, error) {
			if c.Lease == 2 {
				return directory.Record{}, directory.ErrLeaseLost
			}
			return directory.Record{Key: c.Key, Lease: c.Lease}, nil
		},
	}
	d := openScripted(t, s, directory.Options{})
	lease, err := d.Grant(t.Context(), directory.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), directory.Entry{Key: "a", Lease: lease}); err != nil {
		t.Fatal(err)
	}
	until.True(t, "held under a third id", func() bool { return lease.ID() == 3 && d.Metrics().Renewals > 0 })
	if lease.State() != directory.Held || d.Metrics().Lost != 0 {
		t.Errorf("the lease is %v, %v", lease.State(), lease.Err())
	}
}

// Nothing is half put back: where one key is taken, the others go again.
func TestLosingTakesBackWhatWasPutBack(t *testing.T) {
	s := &scripted{
		renew: func(directory.LeaseID) error { return directory.ErrLeaseLost },
		write: func(c directory.Change) (directory.Record, error) {
			if c.Lease == 2 && c.Key == "b" {
				return directory.Record{Key: c.Key, Lease: 99}, directory.ErrExists
			}
			return directory.Record{Key: c.Key, Lease: c.Lease}, nil
		},
	}
	d := openScripted(t, s, directory.Options{})
	lease, err := d.Grant(t.Context(), directory.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b"} {
		if _, err := d.Create(t.Context(), directory.Entry{Key: key, Lease: lease}); err != nil {
			t.Fatal(err)
		}
	}
	<-lease.Lost()
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.revoked, []directory.LeaseID{2}) || !errors.Is(lease.Err(), directory.ErrExists) || d.Metrics().Lost != 1 {
		t.Errorf("revoked were %v, lost because of %v", s.revoked, lease.Err())
	}
}

func TestWritesOfOneKeyTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // protects what follows
		busy := make(map[string]int)
		most, together := 0, 0
		s := &scripted{write: func(c directory.Change) (directory.Record, error) {
			mu.Lock()
			busy[c.Key]++
			most = max(most, busy[c.Key])
			together = max(together, len(busy))
			mu.Unlock()
			time.Sleep(time.Millisecond) // passes when all are in that may be
			mu.Lock()
			defer mu.Unlock()
			if busy[c.Key]--; busy[c.Key] == 0 {
				delete(busy, c.Key)
			}
			return directory.Record{Key: c.Key}, nil
		}}
		d := openScripted(t, s, directory.Options{})
		var writers sync.WaitGroup
		for i := range 40 {
			key := string(rune('a' + i%4))
			writers.Go(func() {
				_, err := d.Put(t.Context(), directory.Entry{Key: key})
				if i%3 == 0 {
					err = d.Delete(t.Context(), key, directory.Any)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if most != 1 || together < 2 {
			t.Errorf("%d writes of one key ran at once, and of %d keys", most, together)
		}
	})
}

// Whatever breaks a stream, the consumer hears it once, and then how it is.
func TestWatchToldOnceOfAnOutage(t *testing.T) {
	clock := directorytest.NewClock()
	broken := errors.New("the stream broke in a way of its own")
	failures := 5
	s := &scripted{
		list: func() (directory.Snapshot, error) {
			if failures--; failures > 0 {
				return directory.Snapshot{}, broken
			}
			return directory.Snapshot{Revision: 7, Records: []directory.Record{{Key: "a/1"}}}, nil
		},
		watch: func(ctx context.Context, after directory.Revision, emit func([]directory.Event) error) error {
			if after != 7 {
				return directory.ErrCompacted
			}
			if err := emit([]directory.Event{{Kind: directory.Put, Revision: 8, Record: directory.Record{Key: "a/2", Revision: 8}}}); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}
	d := openScripted(t, s, directory.Options{Clock: clock})
	watch, err := d.Watch(t.Context(), "a/", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	var kinds []directory.EventKind
	until.True(t, "three events are heard", func() bool {
		select {
		case e := <-watch.Events():
			kinds = append(kinds, e.Kind)
			if e.Kind == directory.Unavailable && !errors.Is(e.Err, broken) {
				t.Errorf("the reason is %v", e.Err)
			}
		default:
			if clock.Timers() > 0 {
				clock.Advance(time.Second)
			}
		}
		return len(kinds) == 3
	})
	if want := []directory.EventKind{directory.Unavailable, directory.Available, directory.Put}; !slices.Equal(kinds, want) {
		t.Errorf("heard %v, want %v", kinds, want)
	}
}

func TestUnansweredCalls(t *testing.T) {
	entered := make(chan struct{}, 1)
	s := &scripted{get: func(ctx context.Context, _ string) (directory.Record, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return directory.Record{}, ctx.Err()
	}}
	d := openScripted(t, s, directory.Options{CallTimeout: 20 * time.Millisecond})
	_, err := d.Get(t.Context(), "a")
	if !errors.Is(err, directory.ErrUnavailable) || !strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("a call that is not answered: %v", err)
	}
	<-entered

	d = openScripted(t, s, directory.Options{CallTimeout: time.Minute})
	answer := make(chan error)
	go func() {
		_, err := d.Get(context.Background(), "a")
		answer <- err
	}()
	<-entered
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; !errors.Is(err, directory.ErrClosed) {
		t.Errorf("a call that Close interrupted: %v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for err, want := range map[*directory.Error]string{
		{Op: "put", Subject: "a", Err: directory.ErrFull, Hint: "delete records"}:                          "meta: put a: the directory is full (delete records)",
		{Op: "close", Err: directory.ErrClosed}:                                                            "meta: close: the directory is closed",
		{Op: "get", Subject: "a", Err: directory.Because(directory.ErrUnavailable, errors.New("refused"))}: "meta: get a: the directory does not answer: refused",
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	s := &scripted{write: func(directory.Change) (directory.Record, error) { return directory.Record{}, directory.ErrUnavailable }}
	_, err := openScripted(t, s, directory.Options{}).Put(t.Context(), directory.Entry{Key: "a"})
	var dressed *directory.Error
	if !errors.As(err, &dressed) || dressed.Op != "put" || dressed.Subject != "a" || !strings.Contains(dressed.Hint, "in doubt") {
		t.Errorf("a write in doubt: %+v", dressed)
	}
	if _, err := directory.New(directory.Options{}); !errors.Is(err, directory.ErrInvalid) {
		t.Errorf("opened without a backend: %v", err)
	}
}

func TestView(t *testing.T) {
	record := func(key, value string, at directory.Revision) directory.Record {
		return directory.Record{Key: key, Value: []byte(value), Revision: at}
	}
	names := func(records []directory.Record) (keys []string) {
		for _, r := range records {
			keys = append(keys, r.Key+"="+string(r.Value))
		}
		return keys
	}
	var v directory.View
	for _, step := range []struct {
		event         directory.Event
		changed, gone []string
		known         bool
	}{
		{directory.Event{Kind: directory.Unavailable}, nil, nil, false},
		{directory.Event{Kind: directory.Available, Records: []directory.Record{record("a", "1", 1), record("b", "2", 2)}}, []string{"a=1", "b=2"}, nil, true},
		{directory.Event{Kind: directory.Put, Record: record("a", "3", 3)}, []string{"a=3"}, nil, true},
		{directory.Event{Kind: directory.Delete, Record: record("b", "", 4)}, nil, []string{"b=2"}, true},
		{directory.Event{Kind: directory.Delete, Record: record("b", "", 5)}, nil, nil, true},
		{directory.Event{Kind: directory.Unavailable}, nil, nil, false},
		{directory.Event{Kind: directory.Available, Records: []directory.Record{record("a", "3", 3)}}, nil, nil, true},
		{directory.Event{Kind: directory.Resync, Records: []directory.Record{record("c", "1", 3)}}, []string{"c=1"}, []string{"a=3"}, true},
		{directory.Event{Kind: directory.Resync, Records: []directory.Record{record("c", "x", 3)}}, []string{"c=x"}, nil, true}, // another directory, same count
	} {
		changed, gone := v.Apply(step.event)
		if !slices.Equal(names(changed), step.changed) || !slices.Equal(names(gone), step.gone) || v.Known() != step.known {
			t.Errorf("%v: changed %q, gone %q, known %v", step.event, names(changed), names(gone), v.Known())
		}
	}
	if got := names(v.Records()); !slices.Equal(got, []string{"c=x"}) {
		t.Errorf("in the end it holds %q", got)
	}
}

func FuzzKey(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "", "/", "..", "a/../b", "a//b", "é", "a\x00", "agents/a@1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if directory.CheckKey(key) != nil {
			return
		}
		if len(key) > directory.MaxKeyBytes || strings.HasPrefix(key, "/") || strings.HasSuffix(key, "/") {
			t.Errorf("%q was accepted", key)
		}
		for segment := range strings.SplitSeq(key, "/") {
			if segment == "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "\x00\n \\") {
				t.Errorf("%q was accepted", key)
			}
		}
		if directory.CheckPrefix(key+"/") != nil || directory.CheckPrefix(key) == nil {
			t.Errorf("%q is a key, but not a prefix with its slash, or one without", key)
		}
	})
}

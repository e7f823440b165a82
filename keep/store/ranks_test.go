package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"meridian/member/directory"
)

// When all numbers are given, a new owner gets that of one which does not run, and those
// that run keep theirs.
func TestRanksAreGivenAgain(t *testing.T) {
	ctx, d := openDirectory(t)
	names := make([]string, maxRanks)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	putRecord(t, d, ranksKey, names)
	runs := func(from, to int) {
		for i := from; i < to; i++ {
			putRecord(t, d, ownersPrefix+names[i], OwnerRecord{Name: names[i], Rank: i})
		}
	}
	expect := func(name string, want int) {
		t.Helper()
		if got, err := rankOf(ctx, d, name); err != nil || got != want {
			t.Fatalf("%s has number %d: %v; want %d", name, got, err, want)
		}
	}
	runs(0, 10)
	expect("new", 10)
	expect("new", 10)
	expect("n9", 9)
	expect("n1023", 1023)
	putRecord(t, d, ownersPrefix+"new", OwnerRecord{Name: "new", Rank: 10})
	expect("n10", 11) // it was away for long
	putRecord(t, d, ownersPrefix+"n10", OwnerRecord{Name: "n10", Rank: 11})
	runs(12, maxRanks)
	if rank, err := rankOf(ctx, d, "one more"); err == nil {
		t.Errorf("number %d, and all owners run", rank)
	}
}

// Numbers of names stay, in whatever order owners ask, and at once.
func TestRanks(t *testing.T) {
	ctx, d := openDirectory(t)
	names := []string{"a", "b", "c", "d"}
	ranks := make([]int, len(names))
	each(len(names), func(i int) {
		rank, err := rankOf(ctx, d, names[i])
		if err != nil {
			t.Error(err)
		}
		ranks[i] = rank
	})
	taken := make(map[int]bool)
	for i, name := range names {
		again, err := rankOf(ctx, d, name)
		if err != nil || again != ranks[i] || again >= len(names) || taken[again] {
			t.Fatalf("%v, %s has %d now: %v", ranks, name, again, err)
		}
		taken[again] = true
	}
	if _, err := d.Put(ctx, directory.Entry{Key: ranksKey, Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	if _, err := rankOf(ctx, d, "e"); err == nil {
		t.Fatal("numbers were read from what is none")
	}
}

// counting counts what is read of a directory.
type counting struct {
	directory.Directory
	gets int
}

func (c *counting) Get(ctx context.Context, key string) (directory.Record, error) {
	c.gets++
	return c.Directory.Get(ctx, key)
}

// settable is a clock that a test sets.
type settable struct {
	directory.WallClock
	now time.Time
}

func (c *settable) Now() time.Time { return c.now }

// Who has the number of an owner that does not run is read once in the time of a lease,
// however often it is asked for, and whether it has a name or not.
func TestRanksOfOwnersThatDoNotRun(t *testing.T) {
	ctx, d := openDirectory(t)
	if rank, err := rankOf(ctx, d, "a"); err != nil || rank != 0 {
		t.Fatalf("%d: %v", rank, err)
	}
	counts, clock := &counting{Directory: d}, &settable{now: time.Now()}
	s := &Store{options: Options{Directory: counts, Clock: clock, Lease: 3 * time.Second}, view: &view{}}
	for lease := range 3 {
		for range 100 {
			if name, err := s.Ranked(ctx, 0); err != nil || name != "a" {
				t.Fatalf("%q: %v", name, err)
			}
			if _, err := s.Ranked(ctx, 1); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("number 1: %v", err)
			}
		}
		if counts.gets != lease+1 {
			t.Fatalf("the directory was asked %d times in %d leases", counts.gets, lease+1)
		}
		clock.now = clock.now.Add(3 * time.Second)
	}
	if _, err := rankOf(ctx, d, "b"); err != nil {
		t.Fatal(err)
	}
	if name, err := s.Ranked(ctx, 1); err != nil || name != "b" {
		t.Fatalf("%q: %v", name, err)
	}
}

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"meridian/meta"
	"meridian/meta/memdir"
)

// When all numbers are given, a new owner gets that of one which does not run, and those
// that run keep theirs.
func TestRanksAreGivenAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(ctx)
	put := func(key string, value any) {
		t.Helper()
		encoded, err := json.Marshal(value)
		if err == nil {
			_, err = d.Put(ctx, meta.Entry{Key: key, Value: encoded})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	names := make([]string, maxRanks)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	put(ranksKey, names)
	runs := func(from, to int) {
		for i := from; i < to; i++ {
			put(ownersPrefix+names[i], OwnerRecord{Name: names[i], Rank: i})
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
	put(ownersPrefix+"new", OwnerRecord{Name: "new", Rank: 10})
	expect("n10", 11) // it was away for long
	put(ownersPrefix+"n10", OwnerRecord{Name: "n10", Rank: 11})
	runs(12, maxRanks)
	if rank, err := rankOf(ctx, d, "one more"); err == nil {
		t.Errorf("number %d, and all owners run", rank)
	}
}

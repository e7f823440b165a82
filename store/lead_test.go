package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"meridian/kv"
	"meridian/meta"
	"meridian/meta/memdir"
	"meridian/store/master"
	"meridian/store/protocol"
)

// A mark of a later master is neither written over nor deleted; one of an earlier
// master, that was late, is.
func TestMarksOfOtherMasters(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(ctx)
	s := &Store{options: Options{Directory: d}}
	of := func(term uint64) *led {
		return &led{store: s, term: term, life: ctx, at: make(map[string]meta.Revision)}
	}
	away := protocol.Mark{Effect: master.Effect{Owner: "x", Incarnation: kv.ID{1}, Away: true}}
	back := away
	back.Away = false
	stands := func() uint64 {
		r, err := d.Get(ctx, awayPrefix+"x")
		if errors.Is(err, meta.ErrNotFound) {
			return 0
		}
		m, err := parseMark(r)
		if err != nil || m.Mark() != (master.Mark{Owner: "x", Incarnation: kv.ID{1}}) {
			t.Fatalf("%+v: %v", m, err)
		}
		return m.Term
	}

	old, later := of(5), of(7)
	if err := old.put(away); err != nil || stands() != 5 {
		t.Fatal(err, stands())
	}
	if err := later.put(away); !errors.Is(err, meta.ErrExists) {
		t.Fatalf("%v: it must learn first what stands there", err)
	}
	if err := later.put(away); err != nil || stands() != 7 {
		t.Fatal(err, stands())
	}
	if err := old.put(away); !errors.Is(err, errDeposed) || stands() != 7 {
		t.Fatal(err, stands())
	}
	if err := old.remove(back); !errors.Is(err, errDeposed) || stands() != 7 {
		t.Fatal(err, stands())
	}
	if err := of(6).remove(back); err != nil || stands() != 7 {
		t.Fatal("a master that knows of no mark deleted one", err, stands())
	}
	if err := later.remove(back); err != nil || stands() != 0 {
		t.Fatal(err, stands())
	}
}

// Numbers of names stay, whoever asks first and at once.
func TestRanks(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := memdir.New(memdir.Options{}).Open(memdir.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(ctx)
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
	if _, err := d.Put(ctx, meta.Entry{Key: ranksKey, Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	if _, err := rankOf(ctx, d, "e"); err == nil {
		t.Fatal("numbers were read from what is none")
	}
}

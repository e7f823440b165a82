package store

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"meridian/keep/store/master"
	"meridian/keep/store/protocol"
	"meridian/kv"
	"meridian/member/directory"
)

// A master that was deposed marks no owner as away, or back, however late its word
// comes: the master after it would not know, and the one after that would believe it.
func TestMarksOfDeposedMasters(t *testing.T) {
	ctx, d := openDirectory(t)
	s := &Store{options: Options{Directory: d, Logger: slog.New(slog.DiscardHandler)}, ctx: ctx}
	for _, name := range []string{"x", "y"} {
		putRecord(t, d, rosterPrefix+name, OwnerRecord{Name: name, Incarnation: kv.ID{1}})
	}
	elect := func() *masterTerm {
		t.Helper()
		seat, err := d.Put(ctx, directory.Entry{Key: masterKey + "/leader"})
		if err != nil {
			t.Fatal(err)
		}
		was, err := s.readPredecessors()
		if err != nil {
			t.Fatal(err)
		}
		return &masterTerm{store: s, term: uint64(seat.Revision), life: ctx, at: was.at, seat: directory.Guard{Key: seat.Key, Revision: seat.Revision}}
	}
	mark := func(name string, away bool) protocol.Mark {
		return protocol.Mark{Effect: master.Effect{Owner: name, Incarnation: kv.ID{1}, Away: away}}
	}
	away := func(want ...string) {
		t.Helper()
		var names []string
		was, err := s.readPredecessors()
		for _, m := range was.marks {
			names = append(names, m.Owner)
		}
		if err != nil || !slices.Equal(names, want) {
			t.Fatalf("%q are away, want %q: %v", names, want, err)
		}
	}
	put := func(l *masterTerm, m protocol.Mark, want error) {
		t.Helper()
		if err := l.put(m); !errors.Is(err, want) {
			t.Fatalf("term %d, %+v: %v, want %v", l.term, m, err, want)
		}
	}

	first := elect()
	put(first, mark("x", true), nil)
	away("x")
	second := elect()
	put(first, mark("x", false), directory.ErrDeposed) // or what x held, and others got since, would come back
	put(first, mark("y", true), directory.ErrDeposed)  // or y would lose all it has to the next master
	away("x")
	put(second, mark("x", false), nil)
	put(second, mark("y", true), nil)
	away("y")
	third := elect()
	put(second, mark("y", false), directory.ErrDeposed)
	put(second, mark("x", true), directory.ErrDeposed)
	away("y")

	// Whether its own word was written a master may have to find out.
	third.at = make(map[string]directory.Revision)
	put(third, mark("y", true), directory.ErrExists)
	put(third, mark("y", true), nil)
	put(third, mark("y", false), nil)
	away()
	third.at["y"] = 1
	put(third, mark("y", true), directory.ErrChanged)
	put(third, mark("y", true), nil)
	away("y")
}

// Marks of owners that will not come back are no burden: a master leads however many there
// are, believes those of owners on the roster, and takes the others away.
func TestMarksOfOwnersThatLeft(t *testing.T) {
	ctx, d := openDirectory(t)
	s := &Store{options: Options{Directory: d, Logger: slog.New(slog.DiscardHandler)}, ctx: ctx}
	mark := func(name string, incarnation byte) {
		t.Helper()
		putRecord(t, d, awayPrefix+name, markRecord{Owner: name, Incarnation: kv.ID{incarnation}})
	}
	for _, name := range []string{"away", "broken", "here", "reborn"} {
		putRecord(t, d, rosterPrefix+name, OwnerRecord{Name: name, Incarnation: kv.ID{2}})
	}
	mark("away", 2)
	putRecord(t, d, awayPrefix+"broken", "no mark")
	mark("reborn", 1)
	putRecord(t, d, awayPrefix+"stranger", "no mark")
	const left = 3*maxOwners + 1
	for i := range left {
		mark(fmt.Sprint("left", i), 2)
	}
	was, err := s.readPredecessors()
	if err != nil {
		t.Fatal(err)
	}
	want := []master.Mark{{Owner: "away", Incarnation: kv.ID{2}}, {Owner: "broken", Incarnation: kv.ID{2}}}
	if !slices.Equal(was.marks, want) || len(was.at) != 2 || len(was.roster) != 4 || len(was.idle) != left+2 {
		t.Fatalf("%+v are away, %d marks say nothing", was.marks, len(was.idle))
	}
	(&masterTerm{store: s, life: ctx}).clear(was.idle)
	if rest, err := d.List(ctx, awayPrefix); err != nil || len(rest.Records) != 2 {
		t.Fatalf("%d marks are left: %v", len(rest.Records), err)
	}
}

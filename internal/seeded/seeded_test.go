package seeded

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"meridian/kv"
)

type actor struct {
	dead  bool
	still kv.Instant
	seen  []string
}

func (a *actor) Dead() bool        { return a.dead }
func (a *actor) Still() kv.Instant { return a.still }
func (a *actor) Before()           { a.seen = append(a.seen, "before") }
func (a *actor) After()            { a.seen = append(a.seen, "after") }

// What comes out of a queue is in order, whatever order it went in.
func TestQueueIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[time.Duration, int]
		var want []Event[time.Duration, int]
		for serial, at := range rapid.SliceOf(rapid.Int64Range(0, 9)).Draw(t, "times") {
			e := Event[time.Duration, int]{At: time.Duration(at), Serial: uint64(serial)}
			q.Push(e)
			want = append(want, e)
		}
		slices.SortStableFunc(want, func(a, b Event[time.Duration, int]) int { return int(a.At - b.At) })
		for _, e := range want {
			if got := q.Pop(); got.At != e.At || got.Serial != e.Serial {
				t.Fatalf("%d at %d comes, want %d at %d", got.Serial, got.At, e.Serial, e.At)
			}
		}
	})
}

func TestWorld(t *testing.T) {
	w := New[*actor](1, 100)
	a, gone := &actor{}, &actor{dead: true}
	order := ""
	say := func(what string) func() { return func() { order += what } }
	w.After(2*kv.Second, a, say("c"))
	w.After(kv.Second, nil, say("a"))
	w.After(kv.Second, a, say("b"))
	w.After(kv.Second, gone, say("never"))
	w.After(kv.Minute, nil, say("too late"))
	w.RunUntil(3 * kv.Second)
	if order != "abc" || w.Now != 3*kv.Second || w.Events != 3 || strings.Join(a.seen, " ") != "before after before after" {
		t.Errorf("%q happened until %d, %d events, around them %q", order, w.Now, w.Events, a.seen)
	}
	order, a.still = "", 5*kv.Second
	w.After(0, a, say("b"))
	w.After(kv.Millisecond, a, say("c"))
	w.After(kv.Second, nil, say("a"))
	w.RunUntil(10 * kv.Second)
	if order != "abc" {
		t.Errorf("%q happened, with one who stood still", order)
	}
}

func TestWorldsEnd(t *testing.T) {
	w := New[*actor](1, 100)
	var again func()
	again = func() { w.After(0, nil, again) }
	again()
	w.RunUntil(kv.Second)
	if w.Broken == nil || w.Broken.Error() != "worlds end: 101 events" || w.Now != 0 {
		t.Errorf("%v, at %d", w.Broken, w.Now)
	}
	w.Violate("a second one", "is not the first")
	w.Live(func() { panic("nor this") })
	if w.Broken.Rule != "worlds end" {
		t.Errorf("%v", w.Broken)
	}
}

func TestPanicsBreakAPromise(t *testing.T) {
	w := New[*actor](1, 100)
	w.Note("%s begins", "it")
	w.Live(func() { panic("no more") })
	r := &Result[int]{Seed: 7, Violation: w.Broken, World: "small", State: "it lies there\n", Story: append(w.Story, Entry{})}
	want := "seed 7: nothing panics: no more\nthe world: small\n        0.000ms  it begins\nit lies there\n"
	if got := r.Tell(5); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if again := (&Result[int]{Story: w.Story}).Hash(); again == r.Hash() {
		t.Error("another story has the same hash")
	}
}

// Spans are within their bounds, and short ones as likely as long ones.
func TestSpans(t *testing.T) {
	w := New[*actor](3, 1)
	short := 0
	for range 1000 {
		d := w.Span(10, 100_000)
		if d < 10 || d > 100_000 {
			t.Fatalf("%d", d)
		}
		if d < 1000 {
			short++
		}
	}
	if short < 200 || short > 800 {
		t.Errorf("%d of 1000 are short", short)
	}
	if one, two := w.ID(), w.ID(); one == two {
		t.Error("two ids are one")
	}
}

func TestCounts(t *testing.T) {
	full, gone := errors.New("full"), errors.New("gone")
	reasons := []error{full, gone}
	mine, theirs := make([]uint64, 3), make([]uint64, 3)
	for _, why := range []error{fmt.Errorf("b: %w", gone), errors.New("rain"), gone} {
		Failed(theirs, reasons, why)
	}
	for range 2 {
		Sections{{"why", Reasons(mine, reasons)}}.Add(Sections{{"why", Reasons(theirs, reasons)}})
	}
	if all := Reasons(mine, reasons); !slices.Equal(mine, []uint64{0, 4, 2}) || all[1].Name != "gone" || all[2].Name != OtherReason {
		t.Errorf("%v: %v", all, mine)
	}
	if got := (Trouble{{"loss", true}, {"delays", false}, {"cuts", true}}).String(); got != "loss, cuts" {
		t.Error(got)
	}
}

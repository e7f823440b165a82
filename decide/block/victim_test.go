package block

import (
	"slices"
	"strings"
	"testing"

	"meridian/kv"
)

// story drives a table whose steps must succeed.
type story struct {
	*testing.T
	table *Table
}

func newStory(t *testing.T, o Options) story {
	t.Helper()
	table, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return story{t, table}
}

func (s story) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// holding admits a request with full blocks of a tier.
func (s story) holding(tier kv.Tier, blocks ...ID) Request {
	s.Helper()
	r := s.table.Admit()
	for _, b := range blocks {
		s.ok(s.table.Hold(r, b, tier))
		s.ok(s.table.Seal(b))
	}
	return r
}

func (s story) copied(blocks ...ID) {
	s.Helper()
	for _, b := range blocks {
		s.ok(s.table.CopyOut(b))
		if whole, err := s.table.CopiedOut(b, true); err != nil || !whole {
			s.Fatal(whole, err)
		}
	}
}

func (s story) victims(want ...ID) {
	s.Helper()
	if got := s.table.Victims(nil, 99); !slices.Equal(got, want) {
		s.Fatalf("victims %v, want %v", got, want)
	}
}

// The order of ADR-0004, all of it in one table.
func TestOrderOfVictims(t *testing.T) {
	s := newStory(t, Options{Blocks: 20, ThinkFraction: 0.9})
	answer := s.holding(kv.OutputCritical, 0, 1)
	thinking := s.holding(kv.ThinkActive, 2, 3)
	thought := s.holding(kv.ThinkActive, 4, 5)
	gone := s.holding(kv.ThinkActive, 6, 7)
	running := s.holding(kv.ThinkActive, 8)
	if out, err := s.table.Demote(thought, nil); err != nil || !slices.Equal(out, []ID{4, 5}) {
		t.Fatal("what a finished thought has to copy out:", out, err)
	}
	s.victims()
	s.ok(s.table.End(gone))
	s.victims(7, 6)
	for _, r := range []Request{answer, thinking, thought} {
		s.ok(s.table.SetState(r, Paused))
	}
	s.victims(7, 6) // the last copies of what is needed stay
	s.copied(0, 1, 2, 3, 4, 5)
	s.victims(7, 6, 4, 5, 2, 3, 0, 1)
	s.ok(s.table.Touch(4))
	s.victims(7, 6, 5, 4, 2, 3, 0, 1)
	s.ok(s.table.SetState(running, Forgone))
	s.victims(7, 6, 5, 4, 2, 3, 8, 0, 1)
	s.ok(s.table.SetState(thinking, Running))
	s.victims(7, 6, 5, 4, 8, 0, 1)
}

// A block that an answer shares is as safe as the answer.
func TestSharedBlockIsTheMostProtectedOfItsHolds(t *testing.T) {
	s := newStory(t, Options{Blocks: 4})
	a := s.holding(kv.ThinkActive, 0, 1)
	b := s.holding(kv.OutputCritical, 0)
	s.ok(s.table.SetState(a, Forgone))
	s.victims(1)
	s.ok(s.table.SetState(b, Forgone))
	s.victims(1, 0)
	if c := s.table.Counters(); c.Held != [3]int{0, 1, 1} || c.Holds != 3 {
		t.Fatalf("%+v", c)
	}
	s.ok(s.table.End(b))
	s.victims(1, 0)
	if c := s.table.Counters(); c.Held != [3]int{0, 2, 0} || c.Holds != 2 {
		t.Fatalf("%+v", c)
	}
}

// Beyond their share think blocks go before what is only cached, until it is kept.
func TestThinkFraction(t *testing.T) {
	s := newStory(t, Options{Blocks: 10, ThinkFraction: 0.2})
	s.ok(s.table.End(s.holding(kv.OutputCritical, 8, 9)))
	r := s.holding(kv.ThinkActive, 0, 1, 2, 3)
	s.ok(s.table.SetState(r, Forgone))
	s.victims(3, 2, 9, 8, 1, 0)
	if err := s.table.Evict(3); err != nil {
		t.Fatal(err)
	}
	s.victims(2, 9, 8, 1, 0)
}

// An aggressive table lets a finished thought go at once, but no last copy.
func TestAggressiveThinkEviction(t *testing.T) {
	for _, aggressive := range []bool{false, true} {
		s := newStory(t, Options{Blocks: 8, Aggressive: aggressive})
		ended := s.holding(kv.ThinkActive, 0, 1)
		paused := s.holding(kv.ThinkActive, 2, 3)
		for _, r := range []Request{ended, paused} {
			if _, err := s.table.Demote(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		s.copied(0, 2)
		if s.table.Due() != 0 {
			t.Fatal("blocks of running requests are due")
		}
		s.ok(s.table.End(ended))
		s.ok(s.table.SetState(paused, Paused))
		want, due := []ID{1, 0, 2}, 0
		if aggressive {
			want, due = []ID{0, 2, 1}, 2
		}
		s.victims(want...)
		if s.table.Due() != due {
			t.Fatalf("aggressive %v: %d due, want %d", aggressive, s.table.Due(), due)
		}
	}
}

func TestEvictionsAreCounted(t *testing.T) {
	s := newStory(t, Options{Blocks: 100})
	r := s.holding(kv.OutputCritical, 0, 1)
	s.ok(s.table.End(s.holding(kv.ThinkActive, 2)))
	s.ok(s.table.SetState(r, Forgone))
	for range 2 {
		victims := s.table.Victims(nil, 9)
		s.ok(s.table.Evict(victims[len(victims)-1]))
	}
	if s.table.Counters().Evicted[kv.OutputCritical] != 2 || s.table.Counters().Recomputed != 2 {
		t.Fatalf("%+v", s.table.Counters())
	}
	if err := s.table.Evict(0); err == nil || !strings.Contains(err.Error(), "vacant") {
		t.Error("a vacant block left:", err)
	}
}

// A transfer that still reads a block keeps it, though its request has ended.
func TestTransfersKeepBlocks(t *testing.T) {
	s := newStory(t, Options{Blocks: 2})
	r := s.table.Admit()
	s.ok(s.table.Hold(r, 0, kv.ThinkActive))
	s.ok(s.table.SetState(r, Paused))
	s.ok(s.table.CopyOut(0))
	s.ok(s.table.End(r))
	if err := s.table.Hold(s.table.Admit(), 0, kv.ThinkActive); err == nil {
		t.Fatal("a block that a transfer reads was given to another request")
	}
	if _, err := s.table.CopiedOut(0, true); err != nil {
		t.Fatal(err)
	}
	s.ok(s.table.Hold(s.table.Admit(), 0, kv.ThinkActive))
}

// A copy of a block that its request goes on writing is worth nothing.
func TestCopyOfAGrowingBlockIsStale(t *testing.T) {
	s := newStory(t, Options{Blocks: 2})
	r := s.table.Admit()
	s.ok(s.table.Hold(r, 0, kv.ThinkActive))
	if err := s.table.CopyOut(0); err == nil {
		t.Fatal("a block was copied while it was written")
	}
	s.ok(s.table.SetState(r, Paused))
	s.ok(s.table.CopyOut(0))
	s.ok(s.table.SetState(r, Running))
	s.ok(s.table.SetState(r, Paused))
	if whole, err := s.table.CopiedOut(0, true); err != nil || whole {
		t.Fatal("a stale copy counts:", whole, err)
	}
	s.victims()
}

// A paused request loses its blocks to the store, and gets them back in others.
func TestRecall(t *testing.T) {
	s := newStory(t, Options{Blocks: 4})
	r := s.holding(kv.OutputCritical, 0, 1)
	s.ok(s.table.SetState(r, Paused))
	s.copied(0, 1)
	s.ok(s.table.Evict(0))
	if n := s.table.Counters().Recomputed; n != 0 {
		t.Fatalf("a copy remains, and %d holds are to be computed again", n)
	}
	if err := s.table.SetState(r, Running); err == nil {
		t.Fatal("a request runs without its first block")
	}
	held, err := s.table.Of(r, nil)
	if err != nil || held[0].Location != Elsewhere || held[1].Location != Both {
		t.Fatal(held, err)
	}
	s.ok(s.table.Recall(held[0], 3))
	if err := s.table.SetState(r, Running); err == nil {
		t.Fatal("a request runs before its block has arrived")
	}
	s.ok(s.table.Arrived(3, true))
	s.ok(s.table.SetState(r, Running))
	if held, _ = s.table.Of(r, nil); held[0].Block != 3 || held[0].Tier != kv.OutputCritical || s.table.Counters().BroughtIn != 1 {
		t.Fatal(held)
	}
}

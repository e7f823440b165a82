package batch

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"meridian/kv"
)

func TestValidate(t *testing.T) {
	valid := Options{Blocks: 1, BlockTokens: 1, MaxRunning: 1, MaxWaiting: 1, StepTokens: 1}
	if err := valid.Validate(); err != nil {
		t.Errorf("the smallest of all: %v", err)
	}
	for name, spoil := range map[string]func(*Options){
		"Blocks":      func(o *Options) { o.Blocks = 0 },
		"BlockTokens": func(o *Options) { o.BlockTokens = 0 },
		"MaxRunning":  func(o *Options) { o.MaxRunning = 0 },
		"MaxWaiting":  func(o *Options) { o.MaxWaiting = -1 },
		"StepTokens":  func(o *Options) { o.StepTokens = 0 },
		"too short":   func(o *Options) { o.MaxRunning = 2 },
	} {
		o := valid
		spoil(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := New(Options{Blocks: 4, BlockTokens: 4, MaxRunning: 1, MaxWaiting: 2, StepTokens: 4})
	if err := s.Add(sequence(tokens(1, 0)), sequence(tokens(17, 0))); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	if err := s.Add(sequence(tokens(1, 0)), sequence(tokens(1, 0)), sequence(tokens(1, 0))); !errors.Is(err, ErrFull) {
		t.Errorf("too many: %v", err)
	}
	if st := s.Stats(); st.Waiting != 0 {
		t.Errorf("something was added: %+v", st)
	}
	add(t, s, sequence(tokens(16, 0)))
	add(t, s, sequence(tokens(1, 0)))
	if err := s.Add(sequence(tokens(1, 0))); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
}

// TestCached is what of a text can be found, but never its last token.
func TestCached(t *testing.T) {
	s := New(roomy)
	cache(s, tokens(12, 0))
	for length, want := range map[int]int{4: 0, 5: 4, 8: 4, 9: 8, 12: 8, 13: 12, 20: 12} {
		if got := s.Cached(sequence(tokens(length, 0))); got != want {
			t.Errorf("of %d tokens %d are there, want %d", length, got, want)
		}
	}
	if got := s.Cached(sequence(append(tokens(6, 0), tokens(6, 50)...))); got != 4 {
		t.Errorf("of one that begins alike %d are there", got)
	}
}

// TestWhoWaitsForABlockThatComes: one that computes a text with a prefix in common.
func TestWhoWaitsForABlockThatComes(t *testing.T) {
	for name, c := range map[string]struct {
		runs, computed int // tokens of the one that runs
		common, length int // of the other
		fetch          int
		unnamed        bool // what is computed cannot be found: another block was, and is gone
		waits          bool
	}{
		"its next block":                         {16, 4, 12, 16, 0, false, true},
		"its last block":                         {8, 4, 8, 12, 0, false, true},
		"its last block, but for a token":        {7, 4, 7, 12, 0, false, false},
		"its last block, which is computed":      {9, 8, 8, 12, 0, false, false},
		"a block that is cached":                 {16, 4, 4, 12, 0, false, false},
		"the block of the last token":            {16, 4, 8, 8, 0, false, false},
		"one before the last token":              {16, 4, 9, 9, 0, false, true},
		"one that is fetched":                    {16, 4, 12, 16, 5, false, false},
		"one that is not fetched":                {16, 4, 12, 16, 4, false, true},
		"its first, and nothing is computed":     {16, 0, 4, 8, 0, false, true},
		"a block that begins otherwise":          {16, 0, 3, 8, 0, false, false},
		"one that is computed, but is not found": {16, 8, 8, 12, 0, true, false},
		"one that is just computed":              {16, 4, 8, 12, 0, true, false},
	} {
		s := New(roomy)
		runs := sequence(tokens(max(c.computed, 1), 0))
		seat(s, runs)
		runs.Tokens, runs.computed = tokens(c.runs, 0), c.computed // it has come so far
		if c.unnamed {
			clear(s.pool.byKey)
			clear(s.pool.keys)
		}
		q := sequence(append(tokens(c.common, 0), tokens(c.length-c.common, 500)...))
		q.Fetch = c.fetch
		add(t, s, q)
		if got := s.comes(q); got != c.waits {
			t.Errorf("%s: waits %v, want %v", name, got, c.waits)
		}
		q.blocks = []uint32{0}
		if s.comes(q) {
			t.Errorf("%s: it waits, but has its blocks", name)
		}
		q.blocks = nil
		s.Pause(runs, Governed)
		if s.comes(q) {
			t.Errorf("%s: it waits for one that is paused", name)
		}
	}
}

// TestTheYoungestOfAll: one that waits with its blocks goes before one that runs and came earlier.
func TestTheYoungestOfAll(t *testing.T) {
	fetched := func(s *Scheduler, q *Sequence) {
		q.Fetch = len(q.Tokens)
		add(t, s, q)
		p := s.Plan()
		s.Commit(p.Work)
		s.Fetched(q)
		s.Release(p.Admitted[0].Hold)
		s.Pause(q, SlowReader)
	}
	for name, c := range map[string]struct{ runs, victim int }{
		"it came last":       {0, 2},
		"it came before":     {2, 2},
		"two wait":           {-1, 2},
		"it came in between": {1, 2},
	} {
		s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 3, MaxWaiting: 8, StepTokens: 20})
		list := []*Sequence{sequence(tokens(4, 0)), sequence(tokens(4, 100)), sequence(tokens(4, 200))}
		for i, q := range list {
			if i == c.runs {
				seat(s, q)
			} else {
				fetched(s, q)
			}
		}
		if got := slices.Index(list, s.youngest()); got != c.victim {
			t.Errorf("%s: %d, want %d", name, got, c.victim)
		}
		s.Preempt(list[c.victim])
		if got := slices.Index(list, s.youngest()); got != c.victim-1 {
			t.Errorf("%s: and then %d, want %d", name, got, c.victim-1)
		}
	}
}

// TestHeldBlocksAreCountedOnce, however many hold them, and stay until the last lets go.
func TestHeldBlocksAreCountedOnce(t *testing.T) {
	s := New(roomy)
	q := sequence(tokens(10, 0))
	seat(s, q)
	all, some, none := s.Hold(q, 99), s.Hold(q, 5), s.Hold(q, 0)
	if all.Tokens() != 10 || some.Tokens() != 5 || none.Tokens() != 0 || len(all.Blocks()) != 3 || len(some.Blocks()) != 2 || len(none.Blocks()) != 0 {
		t.Errorf("%+v, %+v, %+v", all, some, none)
	}
	s.Remove(q)
	for i, want := range []Stats{{Held: 3, Free: 61}, {Held: 2, Free: 62}, {Cached: 2, Free: 62}} {
		if st := s.Stats(); st.Held != want.Held || st.Free != want.Free || st.Cached != want.Cached {
			t.Errorf("%d: %+v", i, st)
		}
		if i < 2 {
			h := []*Hold{all, some}[i]
			if s.Release(h); len(h.Blocks()) != 0 {
				t.Errorf("%d: released, but it has blocks %v", i, h.Blocks())
			}
		}
	}
}

// TestRemovedBetweenPlanAndCommit: what was planned of it is not computed.
func TestRemovedBetweenPlanAndCommit(t *testing.T) {
	s := New(roomy)
	q, other := sequence(tokens(10, 0)), sequence(tokens(10, 100))
	add(t, s, q, other)
	p := s.Plan()
	s.Remove(q)
	s.Commit(p.Work)
	if q.Computed() != 0 || other.Computed() != 10 || s.Stats().Running != 1 || s.Stats().Free != 61 {
		t.Errorf("%d and %d are computed, %+v", q.Computed(), other.Computed(), s.Stats())
	}
	s.Remove(q)
	if st := s.Stats(); st.Running != 1 || st.Free != 61 {
		t.Errorf("removed twice: %+v", st)
	}
}

// TestKeysAreOfEverythingUpToTheirEnd, as others compute them.
func TestKeysAreOfEverythingUpToTheirEnd(t *testing.T) {
	s := New(roomy)
	q := sequence(tokens(12, 0))
	seat(s, q)
	parent := root
	for i := range 3 {
		parent = kv.NextBlockKey(parent, q.Tokens[4*i:4*i+4])
		if b, found := s.pool.Find(parent); !found || b != q.Blocks()[i] {
			t.Errorf("block %d: %d, %v", i, b, found)
		}
	}
}

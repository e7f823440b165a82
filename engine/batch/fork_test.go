package batch

import (
	"slices"
	"testing"
)

func fork(t *testing.T, s *Scheduler, q *Sequence, extra ...uint32) *Sequence {
	t.Helper()
	f, forked := s.Fork(q, extra...)
	if !forked {
		t.Fatalf("no fork of one in state %v, %d of %d tokens computed: %+v", q.State(), q.Computed(), len(q.Tokens), s.Stats())
	}
	return f
}

func TestAForkIsInNoSequencesWay(t *testing.T) {
	s := New(roomy)
	q := sequence(tokens(10, 0))
	add(t, s, q)
	step(s)
	f := fork(t, s, q, 90, 91)
	if !slices.Equal(f.Tokens, append(slices.Clone(q.Tokens), 90, 91)) || !slices.Equal(f.Blocks()[:2], q.Blocks()[:2]) || f.Blocks()[2] == q.Blocks()[2] || len(f.Blocks()) != 4 {
		t.Fatalf("tokens %v, blocks %v of %v", f.Tokens, f.Blocks(), q.Blocks())
	}
	p := step(s)
	if len(p.Work) != 2 || p.Work[0].Sequence != q || p.Work[1] != (Work{Sequence: f, Start: 8, Count: 5, Last: true}) {
		t.Fatalf("%+v", p.Work)
	}
	s.Remove(f)
	if st := s.Stats(); st.Cached != 0 || st.Free != 61 || st.Forks != 0 || st.Running != 1 {
		t.Errorf("a trace of the fork is left: %+v", st)
	}
}

// TestWhoIsNotForked: each row is one step away from a fork.
func TestWhoIsNotForked(t *testing.T) {
	for name, c := range map[string]struct {
		want bool
		make func(*Scheduler) *Sequence
	}{
		"one that waits": {false, func(s *Scheduler) *Sequence {
			q := sequence(tokens(1, 0))
			add(t, s, q)
			return q
		}},
		"one that waits with all its blocks": {false, func(s *Scheduler) *Sequence {
			q := sequence(tokens(9, 0))
			q.Fetch = 9
			add(t, s, q)
			p := s.Plan()
			s.Fetched(q)
			s.Release(p.Admitted[0].Hold)
			return q
		}},
		"one whose prompt is not computed but for two tokens": {false, func(s *Scheduler) *Sequence {
			q := sequence(tokens(12, 0))
			add(t, s, q)
			step(s)
			return q
		}},
		"one whose prompt is computed but for a token": {true, func(s *Scheduler) *Sequence {
			q := sequence(tokens(11, 0))
			add(t, s, q)
			step(s)
			return q
		}},
		"a fork": {false, func(s *Scheduler) *Sequence {
			q := sequence(tokens(9, 0))
			add(t, s, q)
			step(s)
			f := fork(t, s, q)
			s.Commit(s.Plan().Work)
			return f
		}},
		"one of which there are forks": {true, func(s *Scheduler) *Sequence {
			q := sequence(tokens(9, 0))
			add(t, s, q)
			step(s)
			fork(t, s, q)
			return q
		}},
		"one of which there are as many forks as may run": {false, func(s *Scheduler) *Sequence {
			q := sequence(tokens(9, 0))
			add(t, s, q)
			step(s)
			fork(t, s, q)
			fork(t, s, q)
			return q
		}},
		"one that is gone": {false, func(s *Scheduler) *Sequence {
			q := sequence(tokens(9, 0))
			add(t, s, q)
			step(s)
			s.Remove(q)
			return q
		}},
	} {
		s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 2, MaxWaiting: 8, StepTokens: 10})
		q := c.make(s)
		before := s.Stats()
		if f, got := s.Fork(q, 1, 2); got != c.want || (f != nil) != c.want {
			t.Errorf("%s: forked %v", name, got)
		}
		if after := s.Stats(); !c.want && after != before {
			t.Errorf("%s: %+v, before %+v", name, after, before)
		}
	}
}

// TestAForkLeavesABlockForEachThatRuns: it is made only where everybody can still grow.
func TestAForkLeavesABlockForEachThatRuns(t *testing.T) {
	for blocks, want := range map[int]bool{6: false, 7: true} {
		s := New(Options{Blocks: blocks, BlockTokens: 4, MaxRunning: 2, MaxWaiting: 8, StepTokens: 20})
		q, other := sequence(tokens(5, 0)), sequence(tokens(2, 100))
		add(t, s, q, other)
		step(s) // three blocks are used
		if _, got := s.Fork(q, 1, 2, 3); got != want {
			t.Errorf("of %d blocks: forked %v, want %v: %+v", blocks, got, want, s.Stats())
		}
	}
}

// TestAForkOfFullBlocks: its last token is computed, and not in a block of the other.
func TestAForkOfFullBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		extra         []uint32
		start, shared int
	}{
		"with nothing behind them": {nil, 4, 1},
		"with one token":           {tokens(1, 50), 8, 2},
	} {
		s := New(roomy)
		q := sequence(tokens(8, 0))
		add(t, s, q)
		s.Commit(s.Plan().Work) // and its next token is not known yet
		f := fork(t, s, q, c.extra...)
		p := s.Plan()
		if len(p.Work) != 1 || p.Work[0] != (Work{Sequence: f, Start: c.start, Count: len(f.Tokens) - c.start, Last: true}) {
			t.Errorf("%s: %+v", name, p.Work)
		}
		for i, b := range f.Blocks() {
			if slices.Contains(q.Blocks(), b) != (i < c.shared) {
				t.Errorf("%s: blocks %v of %v", name, f.Blocks(), q.Blocks())
			}
		}
	}
}

// TestAForkComesBehindWhoRunsAndBeforeWhoWaits unless an order names it.
func TestAForkComesBehindWhoRunsAndBeforeWhoWaits(t *testing.T) {
	s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 8, MaxWaiting: 8, StepTokens: 10})
	thinks, prompt := sequence(tokens(5, 0)), sequence(tokens(30, 100))
	add(t, s, thinks, prompt)
	step(s) // 5 and 5
	f := fork(t, s, thinks, 90, 91)
	waits := sequence(tokens(9, 200))
	add(t, s, waits)
	list := []*Sequence{thinks, prompt, f, waits}
	wantCounts(t, "the prompt takes all", step(s), list, 1, 9, 0, 0)
	s.Obey(Order{Run: []Allotment{{f, 1}}})
	wantCounts(t, "it is named", step(s), list, 1, 8, 1, 0)
	s.Obey(Order{})
	wantCounts(t, "the prompt leaves one", step(s), list, 1, 8, 1, 0)
	wantCounts(t, "there is room", step(s), list, 1, 1, 2, 6)
}

// TestForksGoFirst, the last one made before the others; and no sequence goes for a fork.
func TestForksGoFirst(t *testing.T) {
	s := New(Options{Blocks: 9, BlockTokens: 4, MaxRunning: 3, MaxWaiting: 8, StepTokens: 20})
	old, young := sequence(tokens(8, 0)), sequence(tokens(8, 100))
	seat(s, old)
	seat(s, young)
	s.Obey(Order{Victims: []*Sequence{old, young}})
	first, second := fork(t, s, young, 5), fork(t, s, young, 6)
	grow := fork(t, s, young, 7)
	s.pool.Take(nil, 2) // the last
	for range 4 {
		s.Append(grow, 8)
	}
	p := s.Plan()
	if len(p.Work) != 2 || len(p.Dropped)+len(p.Preempted) != 0 {
		t.Fatalf("a fork without a block: %+v", p)
	}
	s.Commit(p.Work)
	for i, f := range []*Sequence{grow, second, first} {
		for len(old.Tokens) < 9+4*i {
			s.Append(old, 7)
		}
		p := s.Plan()
		if !slices.Equal(p.Dropped, []*Sequence{f}) || len(p.Preempted) != 0 || f.State() != Absent || s.Stats().Forks != 2-i {
			t.Errorf("%d: %d dropped, %d preempted, state %v, %+v", i, len(p.Dropped), len(p.Preempted), f.State(), s.Stats())
		}
		s.Commit(p.Work)
	}
	for len(old.Tokens) < 21 {
		s.Append(old, 7)
	}
	if p := s.Plan(); !slices.Equal(p.Preempted, []*Sequence{old}) || len(p.Dropped) != 0 {
		t.Errorf("without forks: %+v", p)
	}
}

func TestAPreemptedForkIsGone(t *testing.T) {
	s := New(roomy)
	q := sequence(tokens(8, 0))
	seat(s, q)
	f := fork(t, s, q, 5)
	if !s.Preempt(f) || f.State() != Absent || s.Stats().Forks != 0 || s.Stats().Waiting != 0 || q.State() != Running {
		t.Errorf("state %v, %+v", f.State(), s.Stats())
	}
}

// TestNoneWaitsForAForkThatStandsStill: it goes where one that waits finds no blocks.
func TestNoneWaitsForAForkThatStandsStill(t *testing.T) {
	for name, c := range map[string]struct {
		length, running int
		stands          bool
		dropped         bool
	}{
		"no blocks":                     {25, 8, true, true},
		"no blocks, but it is computed": {25, 8, false, false},
		"there are blocks":              {3, 8, true, false},
		"no blocks, and none could run": {25, 1, true, false},
	} {
		s := New(Options{Blocks: 10, BlockTokens: 4, MaxRunning: c.running, MaxWaiting: 8, StepTokens: 20})
		q, waits := sequence(tokens(8, 0)), sequence(tokens(c.length, 100))
		seat(s, q)
		f := fork(t, s, q, 5)
		if c.stands {
			s.Pause(f, Governed)
		}
		add(t, s, waits)
		p := s.Plan()
		if got := slices.Equal(p.Dropped, []*Sequence{f}); got != c.dropped || got != (f.State() == Absent) || len(p.Dropped) > 1 {
			t.Errorf("%s: dropped %v, state %v", name, p.Dropped, f.State())
		}
		if s.Commit(p.Work); c.dropped && !slices.Equal(admitted(s.Plan()), []*Sequence{waits}) {
			t.Errorf("%s: and still there is no room", name)
		}
	}
}

package batch

import (
	"slices"
	"testing"
)

// roomy has more of everything than any test here needs.
var roomy = Options{Blocks: 64, BlockTokens: 4, MaxRunning: 8, MaxWaiting: 16, StepTokens: 100}

// seat lets q run, with all its tokens computed, whether or not there is room for it
// and for the others to grow.
func seat(s *Scheduler, q *Sequence) {
	s.arrivals++
	q.state, q.arrival, q.prompted = Running, s.arrivals, true
	q.blocks, q.computed = s.pool.Take(nil, s.blocksFor(len(q.Tokens))), len(q.Tokens)
	s.running = append(s.running, q)
	s.name(q)
}

// counts is how many tokens each of list has in a plan.
func counts(p Plan, list ...*Sequence) []int {
	got := make([]int, len(list))
	for _, w := range p.Work {
		got[slices.Index(list, w.Sequence)] += w.Count
	}
	return got
}

func wantCounts(t *testing.T, what string, p Plan, list []*Sequence, want ...int) {
	t.Helper()
	if got := counts(p, list...); !slices.Equal(got, want) {
		t.Errorf("%s: the step has %v tokens of them, want %v", what, got, want)
	}
}

func TestAnOrderGoesFirst(t *testing.T) {
	o := roomy
	o.StepTokens = 10
	s := New(o)
	first, second, third := sequence(tokens(12, 0)), sequence(tokens(12, 100)), sequence(tokens(12, 200))
	list := []*Sequence{first, second, third}
	add(t, s, list...)
	s.Obey(Order{Run: []Allotment{{third, 5}, {second, 3}, {third, 4}}})
	p := s.Plan()
	wantCounts(t, "admitted as ordered", p, list, 2, 3, 5)
	for i, want := range []*Sequence{third, second, first} {
		if p.Admitted[i].Sequence != want {
			t.Errorf("admission %d is another", i)
		}
	}
	s.Commit(p.Work)
	wantCounts(t, "the order stands", step(s), list, 2, 3, 5)
	wantCounts(t, "what is left of one", step(s), list, 5, 3, 2)
	s.Obey(Order{Run: []Allotment{{second, 0}, {first, -1}}})
	wantCounts(t, "without a limit", step(s), list, 3, 3, 1)
	s.Obey(Order{})
	wantCounts(t, "the scheduler's own", step(s), list, 1, 1, 1)
	s.Obey(Order{Run: []Allotment{{second, 1}, {third, 1}}})
	s.Remove(second)
	wantCounts(t, "one is gone", step(s), list, 1, 0, 1)
}

// TestAnOrderEndsWithTheNext, and does not change with the caller's lists.
func TestAnOrderEndsWithTheNext(t *testing.T) {
	s := New(roomy)
	q, other := sequence(tokens(30, 0)), sequence(tokens(30, 100))
	list := []*Sequence{q, other}
	add(t, s, list...)
	o := Order{Run: []Allotment{{q, 2}, {other, 3}}, Victims: []*Sequence{q}}
	s.Obey(o)
	o.Run[0], o.Run[1], o.Victims[0] = Allotment{other, 7}, Allotment{other, 8}, other
	wantCounts(t, "as it was said", step(s), list, 2, 3)
	if s.victim() != q {
		t.Error("another would have to go")
	}
	s.Obey(Order{Run: []Allotment{{other, 4}}})
	wantCounts(t, "one is not named any more", step(s), list, 28, 4)
}

func TestWhoIsNotNamedIsServedLast(t *testing.T) {
	o := roomy
	o.MaxRunning, o.StepTokens = 2, 4
	s := New(o)
	first, second := sequence(tokens(2, 0)), sequence(tokens(20, 100))
	list := []*Sequence{first, second}
	add(t, s, list...)
	wantCounts(t, "as they came", step(s), list, 2, 2)
	s.Obey(Order{Run: []Allotment{{second, 0}}})
	wantCounts(t, "all for the one who is named", step(s), list, 0, 4)
	for second.missing() > 1 {
		step(s)
	}
	wantCounts(t, "the other goes on behind it", step(s), list, 1, 1)
}

func TestAPauseStandsForEachOfItsReasons(t *testing.T) {
	s := New(roomy)
	q, other := sequence(tokens(3, 0)), sequence(tokens(3, 100))
	list := []*Sequence{q, other}
	add(t, s, list...)
	s.Obey(Order{Run: []Allotment{{q, 0}}})
	s.Pause(q, Governed)
	if wantCounts(t, "not admitted", step(s), list, 0, 3); q.State() != Waiting {
		t.Errorf("state %v", q.State())
	}
	s.Unpause(q, SlowReader)
	wantCounts(t, "another reason was taken away", step(s), list, 0, 1)
	s.Unpause(q, Governed)
	wantCounts(t, "admitted", step(s), list, 3, 1)
	s.Pause(q, SlowReader)
	s.Pause(q, Governed)
	s.Pause(q, Governed)
	s.Unpause(q, SlowReader)
	if wantCounts(t, "one of two is left", step(s), list, 0, 1); q.Paused() != Governed || q.State() != Running || len(q.Blocks()) != 1 {
		t.Errorf("paused %d, state %v, blocks %v", q.Paused(), q.State(), q.Blocks())
	}
	s.Unpause(q, Governed)
	wantCounts(t, "none is left", step(s), list, 1, 1)
}

// TestVictims: three have all blocks; the first to need one more takes it from whom
// the order says.
func TestVictims(t *testing.T) {
	for name, c := range map[string]struct {
		victims   []int
		run       []int
		pause     []int
		preempted []int
	}{
		"the youngest":                      {nil, nil, nil, []int{2}},
		"whom the order says":               {[]int{1}, nil, nil, []int{1}},
		"first to go first":                 {[]int{1, 0}, nil, nil, []int{1}},
		"the one that grows":                {[]int{0, 1}, nil, nil, []int{0}},
		"one that is paused":                {[]int{1}, nil, []int{1}, []int{1}},
		"the youngest, which is paused":     {nil, nil, []int{2}, []int{2}},
		"the last in the order":             {nil, []int{2, 0, 1}, nil, []int{1}},
		"whom the order says, though first": {[]int{2}, []int{2, 0, 1}, nil, []int{2}},
		"one that is not named":             {nil, []int{0, 2}, nil, []int{1}},
		"the youngest that is not named":    {nil, []int{2}, nil, []int{1}},
		"of two places the first":           {nil, []int{2, 0, 1, 2}, nil, []int{1}},
	} {
		s := New(Options{Blocks: 6, BlockTokens: 4, MaxRunning: 3, MaxWaiting: 8, StepTokens: 100})
		list := []*Sequence{sequence(tokens(8, 0)), sequence(tokens(5, 100)), sequence(tokens(5, 200))}
		for _, q := range list {
			seat(s, q)
		}
		for _, q := range list {
			s.Append(q, 7)
		}
		gone := sequence(tokens(3, 300))
		o := Order{Victims: []*Sequence{gone}}
		for _, i := range c.victims {
			o.Victims = append(o.Victims, list[i])
		}
		for _, i := range c.run {
			o.Run = append(o.Run, Allotment{Sequence: list[i]})
		}
		s.Obey(o)
		for _, i := range c.pause {
			s.Pause(list[i], Governed)
		}
		p := step(s)
		var got []int
		for _, q := range p.Preempted {
			got = append(got, slices.Index(list, q))
		}
		if !slices.Equal(got, c.preempted) {
			t.Errorf("%s: %v had to go, want %v", name, got, c.preempted)
		}
		for _, i := range c.preempted {
			if q := list[i]; q.State() != Waiting || q.Computed() != 0 || len(q.Blocks()) != 0 || q.planned != 0 || counts(p, list...)[i] != 0 {
				t.Errorf("%s: %d is in state %v, %d computed, blocks %v, %d planned", name, i, q.State(), q.Computed(), q.Blocks(), q.planned)
			}
		}
	}
}

// TestAVictimWithOneBlock is as good as one with many.
func TestAVictimWithOneBlock(t *testing.T) {
	s := New(Options{Blocks: 4, BlockTokens: 4, MaxRunning: 3, MaxWaiting: 8, StepTokens: 100})
	list := []*Sequence{sequence(tokens(8, 0)), sequence(tokens(3, 100)), sequence(tokens(3, 200))}
	for _, q := range list {
		seat(s, q)
	}
	s.Append(list[0], 7)
	s.Obey(Order{Victims: list[1:2]})
	if p := s.Plan(); !slices.Equal(p.Preempted, list[1:2]) {
		t.Errorf("%+v", p)
	}
}

// TestOneThatHadToGoIsNotRunBehind: it stood later in the same plan.
func TestOneThatHadToGoIsNotRunBehind(t *testing.T) {
	s := New(Options{Blocks: 6, BlockTokens: 4, MaxRunning: 3, MaxWaiting: 8, StepTokens: 100})
	list := []*Sequence{sequence(tokens(8, 0)), sequence(tokens(5, 100)), sequence(tokens(5, 200))}
	for _, q := range list {
		seat(s, q)
		s.Append(q, 7)
		s.Append(q, 8)
	}
	s.Obey(Order{Victims: list[1:2]})
	p := s.Plan()
	if wantCounts(t, "the others", p, list, 2, 0, 2); !slices.Equal(p.Preempted, list[1:2]) || list[1].planned != 0 || len(list[1].Blocks()) != 0 {
		t.Errorf("%+v, %d planned, blocks %v", p, list[1].planned, list[1].Blocks())
	}
}

// TestAVictimIsNotFetched: the door writes its blocks.
func TestAVictimIsNotFetched(t *testing.T) {
	s := New(Options{Blocks: 4, BlockTokens: 4, MaxRunning: 3, MaxWaiting: 8, StepTokens: 100})
	fetches, q := sequence(tokens(8, 0)), sequence(tokens(8, 100))
	fetches.Fetch = 8
	add(t, s, fetches)
	s.Plan()
	seat(s, q)
	s.Append(q, 7)
	s.Obey(Order{Victims: []*Sequence{fetches}})
	if p := s.Plan(); !slices.Equal(p.Preempted, []*Sequence{q}) || fetches.State() != Fetching || s.Preempt(fetches) {
		t.Errorf("%+v, state %v", p, fetches.State())
	}
}

// TestAnswersGoBeforePromptsThatCameEarlier.
func TestAnswersGoBeforePromptsThatCameEarlier(t *testing.T) {
	o := roomy
	o.StepTokens = 10
	s := New(o)
	prompt, answers, other := sequence(tokens(20, 0)), sequence(tokens(3, 100)), sequence(tokens(2, 200))
	for _, q := range []*Sequence{prompt, answers, other} {
		seat(s, q)
	}
	prompt.computed, other.computed = 0, 0
	s.Append(answers, 7)
	wantCounts(t, "the prompt gets the rest", s.Plan(), []*Sequence{prompt, answers, other}, 9, 1, 0)
}

func TestPreempt(t *testing.T) {
	s := New(roomy)
	q := sequence(tokens(10, 0))
	add(t, s, q)
	if s.Preempt(q) {
		t.Error("one without blocks was preempted")
	}
	step(s)
	text, found := slices.Clone(q.Tokens), slices.Clone(q.Blocks()[:2])
	if !s.Preempt(q) || q.State() != Waiting || len(q.Blocks()) != 0 {
		t.Fatalf("state %v, blocks %v", q.State(), q.Blocks())
	}
	if st := s.Stats(); st.Cached != 2 || st.Free != 62 || st.Running != 0 || st.Waiting != 1 {
		t.Errorf("%+v", st)
	}
	s.Pause(q, Governed)
	if p := step(s); len(p.Work) != 0 {
		t.Errorf("it runs while it is paused: %+v", p.Work)
	}
	s.Unpause(q, Governed)
	p := s.Plan()
	if len(p.Work) != 1 || p.Work[0].Start != 8 || p.Work[0].Count != 3 || !slices.Equal(q.Blocks()[:2], found) || !slices.Equal(q.Tokens, text) {
		t.Errorf("it does not go on from what is left of it: %+v, blocks %v of %v", p.Work, q.Blocks(), found)
	}
	s.Commit(p.Work)
	s.Remove(q)
	if s.Preempt(q) {
		t.Error("one that is gone was preempted")
	}
}

package batch

import (
	"slices"
	"testing"
)

// admitted is who was let in.
func admitted(p Plan) (list []*Sequence) {
	for _, a := range p.Admitted {
		list = append(list, a.Sequence)
	}
	return list
}

// cache leaves the full blocks of a text behind, which no sequence uses.
func cache(s *Scheduler, text []uint32) {
	q := sequence(text)
	seat(s, q)
	s.Remove(q)
}

// TestRoomForANewcomer: blocks for all its tokens, and one for each that runs.
func TestRoomForANewcomer(t *testing.T) {
	for name, c := range map[string]struct {
		blocks, length, cached, runs int
		want                         bool
	}{
		"all blocks":                              {4, 16, 0, 0, true},
		"all but one, and one runs":               {6, 16, 0, 1, true},
		"all, and one runs":                       {5, 16, 0, 1, false},
		"two run":                                 {8, 16, 0, 2, true},
		"two run, and one could not grow":         {7, 16, 0, 2, false},
		"half of it is there":                     {4, 16, 8, 0, true},
		"half of it is there, and one runs":       {6, 16, 8, 1, true},
		"half of it is there, one could not grow": {5, 16, 8, 1, false},
		"a token more than full blocks":           {5, 13, 0, 1, false},
	} {
		s := New(Options{Blocks: c.blocks, BlockTokens: 4, MaxRunning: 8, MaxWaiting: 8, StepTokens: 100})
		if c.cached > 0 {
			cache(s, tokens(c.cached, 0))
		}
		for i := range c.runs {
			seat(s, sequence(tokens(1, uint32(100+i))))
		}
		q := sequence(tokens(c.length, 0))
		add(t, s, q)
		p := s.Plan()
		if got := len(p.Admitted) == 1; got != c.want {
			t.Errorf("%s: admitted %v, want %v", name, got, c.want)
		}
		if c.want && (p.Admitted[0].Cached != c.cached || q.Computed() != c.cached || len(q.Blocks()) != s.blocksFor(c.length)) {
			t.Errorf("%s: %d were there, %d blocks", name, p.Admitted[0].Cached, len(q.Blocks()))
		}
		if !c.want && (q.State() != Waiting || len(q.Blocks()) != 0 || s.pool.Available() != c.blocks-c.runs) {
			t.Errorf("%s: it was not left as it was: state %v, blocks %v, %+v", name, q.State(), q.Blocks(), s.Stats())
		}
	}
}

// TestFoundBlocksThatAreUsedAreNotTakenFromTheFreeOnes: what another uses costs nothing.
func TestFoundBlocksThatAreUsedAreNotTakenFromTheFreeOnes(t *testing.T) {
	s := New(Options{Blocks: 4, BlockTokens: 4, MaxRunning: 8, MaxWaiting: 8, StepTokens: 100})
	seat(s, sequence(tokens(8, 0)))
	q := sequence(append(tokens(8, 0), 50))
	add(t, s, q)
	if p := s.Plan(); len(p.Admitted) != 1 || p.Admitted[0].Cached != 8 {
		t.Errorf("%+v", p)
	}
}

// TestNoneOvertakesOneThatDoesNotFit but those that have their blocks.
func TestNoneOvertakesOneThatDoesNotFit(t *testing.T) {
	s := New(Options{Blocks: 8, BlockTokens: 4, MaxRunning: 8, MaxWaiting: 8, StepTokens: 100})
	runs := sequence(tokens(4, 0))
	seat(s, runs)
	long, short, fetched := sequence(tokens(28, 100)), sequence(tokens(3, 200)), sequence(tokens(3, 300))
	fetched.Fetch = 3
	add(t, s, fetched)
	h := s.Plan().Admitted[0].Hold
	add(t, s, long, short)
	s.Fetched(fetched)
	s.Release(h)
	s.Pause(fetched, SlowReader)
	if p := s.Plan(); len(p.Admitted) != 0 {
		t.Errorf("another overtakes: %+v", p)
	}
	s.Unpause(fetched, SlowReader)
	if p := s.Plan(); !slices.Equal(admitted(p), []*Sequence{fetched}) {
		t.Errorf("not the one that has its blocks: %+v", p)
	} else {
		s.Commit(p.Work)
	}
	s.Obey(Order{Run: []Allotment{{short, 0}, {long, 0}}})
	if p := s.Plan(); !slices.Equal(admitted(p), []*Sequence{short}) {
		t.Errorf("not the one that the order puts before it: %+v", p)
	}
}

// TestMaxRunning bounds who computes; those that fetch have as many places of their own.
func TestMaxRunning(t *testing.T) {
	s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 2, MaxWaiting: 16, StepTokens: 100, FetchTokens: 3})
	var list []*Sequence
	for i := range 3 {
		computes, fetches := sequence(tokens(5, uint32(i*100))), sequence(tokens(5, uint32(1000+i*100)))
		fetches.Fetch = 5
		list = append(list, computes, fetches)
	}
	add(t, s, list[0], list[1], list[2], list[3])
	if p := step(s); !slices.Equal(admitted(p), list[:4]) || len(p.Work) != 2 {
		t.Fatalf("%+v", p)
	}
	add(t, s, list[5])
	if p := step(s); len(p.Admitted) != 0 {
		t.Errorf("one too many is fetched: %+v", p.Admitted)
	}
	add(t, s, list[4])
	if p := step(s); len(p.Admitted) != 0 {
		t.Errorf("one too many: %+v", p.Admitted)
	}
	s.Remove(list[4])
	s.Remove(list[0])
	s.Unfetched(list[1])
	if p := step(s); !slices.Equal(admitted(p), []*Sequence{list[1], list[5]}) || p.Admitted[0].Fetch || !p.Admitted[1].Fetch {
		t.Errorf("not the two places that there are: %+v", p.Admitted)
	}
	for i, want := range []State{Absent, Running, Running, Fetching, Absent, Fetching} {
		if list[i].State() != want {
			t.Errorf("%d is in state %v, want %v", i, list[i].State(), want)
		}
	}
	if st := s.Stats(); st.Running != 2 || st.Fetching != 2 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

// TestWhatIsFetched: 8 of a text of 14 tokens, or 12, are cached here.
func TestWhatIsFetched(t *testing.T) {
	for name, c := range map[string]struct {
		cached, fetch, from      int
		fetches, declined, dated bool
	}{
		"all":                      {0, 14, 0, true, false, false},
		"a little of what is not":  {0, 1, 0, true, false, false},
		"the rest":                 {8, 12, 8, true, false, false},
		"the rest, as one token":   {8, 11, 8, true, false, false},
		"too little":               {8, 10, 8, false, true, false},
		"nothing":                  {12, 12, 8, false, true, false},
		"what was here is not":     {4, 12, 8, false, false, true},
		"and little is missing":    {4, 6, 5, false, false, true},
		"nothing of it is here":    {0, 12, 8, false, false, true},
		"it was not to be fetched": {8, 0, 0, false, false, false},
	} {
		for _, crowded := range []bool{false, true} {
			s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 1, MaxWaiting: 16, StepTokens: 100, FetchTokens: 3})
			if c.cached > 0 {
				cache(s, tokens(c.cached, 0))
			}
			if crowded { // no other sequence can run
				seat(s, sequence(tokens(1, 100)))
			}
			q := sequence(tokens(14, 0))
			q.Fetch, q.FetchFrom = c.fetch, c.from
			add(t, s, q)
			before := s.Stats()
			p := s.Plan()
			if crowded && !c.fetches {
				if len(p.Admitted) != 0 || len(q.Blocks()) != 0 || q.Fetch != c.fetch || s.Stats() != before {
					t.Errorf("%s: no sequence can run, but %+v, fetch %d, %+v", name, p.Admitted, q.Fetch, s.Stats())
				}
				continue
			}
			if len(p.Admitted) != 1 {
				t.Fatalf("%s: %+v", name, p)
			}
			a := p.Admitted[0]
			if a.Fetch != c.fetches || a.Declined != c.declined || a.Outdated != c.dated || a.Cached != c.cached {
				t.Errorf("%s: %+v", name, a)
			}
			if c.fetches && (len(a.Hold.Blocks()) != s.blocksFor(c.fetch) || q.State() != Fetching || len(p.Work) != 0) {
				t.Errorf("%s: %d blocks are held, state %v, %+v", name, len(a.Hold.Blocks()), q.State(), p.Work)
			}
			if !c.fetches && (a.Hold != nil || q.State() != Running || q.Fetch != 0 || p.Work[0].Start != c.cached) {
				t.Errorf("%s: state %v, fetch %d, %+v", name, q.State(), q.Fetch, p.Work)
			}
		}
	}
}

// TestOneTokenThatIsHere, in a block of its own, is enough not to fetch another.
func TestOneTokenThatIsHere(t *testing.T) {
	s := New(Options{Blocks: 64, BlockTokens: 1, MaxRunning: 1, MaxWaiting: 16, StepTokens: 100, FetchTokens: 3})
	cache(s, tokens(1, 0))
	q := sequence(tokens(3, 0))
	q.Fetch = 3
	add(t, s, q)
	if a := s.Plan().Admitted[0]; !a.Declined || a.Fetch {
		t.Errorf("%+v", a)
	}
}

// TestAfterAFetch: what came is not computed, but for the last token.
func TestAfterAFetch(t *testing.T) {
	for name, c := range map[string]struct{ fetch, computed, cached int }{
		"all":                     {14, 13, 3},
		"all but a token":         {13, 13, 3},
		"full blocks":             {12, 12, 3},
		"less than what was here": {3, 4, 1},
	} {
		s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 2, MaxWaiting: 16, StepTokens: 100, FetchTokens: -1})
		cache(s, tokens(4, 0))
		q, follower := sequence(tokens(14, 0)), sequence(tokens(14, 500))
		q.Fetch = c.fetch
		follower.Leader = q
		add(t, s, q, follower)
		p := s.Plan()
		s.Fetched(q)
		s.Release(p.Admitted[0].Hold)
		if q.State() != Waiting || q.Fetch != 0 || q.Computed() != c.computed || s.Stats().Fetching != 0 || s.Stats().Held != 0 {
			t.Errorf("%s: state %v, %d computed, %+v", name, q.State(), q.Computed(), s.Stats())
		}
		p = s.Plan()
		if want := 1; c.fetch >= q.Prompt && len(p.Admitted) != 1+want || c.fetch < q.Prompt && len(p.Admitted) != want {
			t.Errorf("%s: %d admitted", name, len(p.Admitted))
		}
		if p.Work[0] != (Work{Sequence: q, Start: c.computed, Count: 14 - c.computed, Last: true}) {
			t.Errorf("%s: %+v", name, p.Work)
		}
		s.Remove(q)
		if st := s.Stats(); st.Cached != c.cached {
			t.Errorf("%s: %d blocks can be found, want %d", name, st.Cached, c.cached)
		}
	}
}

// TestAFollowerWaitsForItsLeader until the leader's prompt is computed, or it is gone.
func TestAFollowerWaitsForItsLeader(t *testing.T) {
	s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 4, MaxWaiting: 16, StepTokens: 7})
	leader, follower := sequence(tokens(12, 0)), sequence(tokens(3, 100))
	follower.Leader = leader
	add(t, s, leader, follower)
	list := []*Sequence{leader, follower}
	wantCounts(t, "most of it", step(s), list, 7, 0)
	wantCounts(t, "the rest", step(s), list, 5, 0)
	s.Preempt(leader) // but its prompt was computed once
	s.Pause(leader, Governed)
	wantCounts(t, "then", step(s), list, 0, 3)

	for name, again := range map[string]func(){
		"computed": func() {
			s.Commit(s.Plan().Work)
		},
		"fetched": func() {
			leader.Fetch = 4
			p := s.Plan()
			s.Fetched(leader)
			s.Release(p.Admitted[0].Hold)
		},
	} {
		s = New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 4, MaxWaiting: 16, StepTokens: 7})
		leader, follower = sequence(tokens(12, 0)), sequence(tokens(3, 100))
		follower.Leader = leader
		add(t, s, leader)
		step(s)
		step(s)
		s.Preempt(leader)
		clear(s.pool.byKey) // nothing of it is found
		again()
		s.Pause(leader, Governed)
		add(t, s, follower)
		if p := s.Plan(); leader.Computed() >= 12 || !slices.Equal(admitted(p), []*Sequence{follower}) {
			t.Errorf("some of the leader's prompt is %s again: %+v", name, p)
		}
	}

	leader, follower = sequence(tokens(12, 200)), sequence(tokens(3, 300))
	follower.Leader = leader
	add(t, s, leader, follower)
	step(s)
	s.Remove(leader)
	if p := step(s); !slices.Equal(admitted(p), []*Sequence{follower}) {
		t.Errorf("its leader is gone: %+v", p)
	}
}

// TestNoneIsLetInWhereOneHadToGo: the blocks that there are then are for those
// that run.
func TestNoneIsLetInWhereOneHadToGo(t *testing.T) {
	s := New(Options{Blocks: 6, BlockTokens: 4, MaxRunning: 4, MaxWaiting: 16, StepTokens: 6})
	old, young, waits := sequence(tokens(12, 0)), sequence(tokens(12, 100)), sequence(tokens(2, 200))
	seat(s, old)
	seat(s, young)
	add(t, s, waits)
	s.Append(young, 7)
	s.Obey(Order{Run: []Allotment{{young, 0}, {waits, 0}}, Victims: []*Sequence{young}})
	if p := s.Plan(); !slices.Equal(p.Preempted, []*Sequence{young}) || len(p.Admitted) != 0 || len(p.Work) != 0 {
		t.Errorf("%+v", p)
	}
	s.Obey(Order{Run: []Allotment{{waits, 0}}})
	if p := s.Plan(); !slices.Equal(admitted(p), []*Sequence{waits}) {
		t.Errorf("and then: %+v", p)
	}
}

// TestTokensOfOneThatHadToGoAreForOthers.
func TestTokensOfOneThatHadToGoAreForOthers(t *testing.T) {
	s := New(Options{Blocks: 5, BlockTokens: 4, MaxRunning: 3, MaxWaiting: 16, StepTokens: 4})
	old, prompt, young := sequence(tokens(4, 0)), sequence(tokens(8, 100)), sequence(tokens(5, 200))
	seat(s, old)
	seat(s, prompt)
	seat(s, young)
	prompt.computed = 0 // it is to be computed yet
	s.Append(old, 7)
	s.Append(young, 7)
	s.Obey(Order{Run: []Allotment{{young, 0}, {old, 0}}, Victims: []*Sequence{young}})
	p := s.Plan()
	if !slices.Equal(p.Preempted, []*Sequence{young}) {
		t.Fatalf("%+v", p)
	}
	wantCounts(t, "one for the old", p, []*Sequence{old, prompt, young}, 1, 3, 0)
}

// TestSeats: whom a governor has wait leaves his place to others; when he goes on, a step has
// no more sequences than it may have, and the others have theirs in the next.
func TestSeats(t *testing.T) {
	for _, c := range []struct {
		reason PauseReason
		want   int
	}{{Governed, 2}, {SlowReader, 0}} {
		s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 2, MaxWaiting: 16, StepTokens: 100})
		all := []*Sequence{{Tokens: []uint32{1, 1}, Prompt: 2}, {Tokens: []uint32{2, 2}, Prompt: 2}, {Tokens: []uint32{3, 3}, Prompt: 2}, {Tokens: []uint32{4, 4}, Prompt: 2}}
		if err := s.Add(all...); err != nil {
			t.Fatal(err)
		}
		turn := func() []*Sequence {
			p := s.Plan()
			s.Commit(p.Work)
			var ran []*Sequence
			for _, w := range p.Work {
				ran = append(ran, w.Sequence)
				s.Append(w.Sequence, 9)
			}
			return ran
		}
		turn()
		s.Pause(all[0], c.reason)
		s.Pause(all[1], c.reason)
		if ran := turn(); len(ran) != c.want {
			t.Fatalf("%v: %d run", c.reason, len(ran))
		}
		s.Unpause(all[0], c.reason)
		s.Unpause(all[1], c.reason)
		if ran := turn(); len(ran) != 2 || ran[0] != all[0] || ran[1] != all[1] {
			t.Errorf("%v: %d run", c.reason, len(ran))
		}
	}
}

// TestOneThatWantsToBeAskedAboutIsAskedOnce: when there is room for it and much to compute.
func TestOneThatWantsToBeAskedAboutIsAskedOnce(t *testing.T) {
	o := roomy
	o.FetchTokens, o.Blocks = 5, 8
	s := New(o)
	full, long, short := sequence(tokens(24, 0)), sequence(tokens(12, 100)), sequence(tokens(3, 200))
	seat(s, full)
	long.Ask, short.Ask = true, true
	add(t, s, long, short)
	if p := s.Plan(); len(p.Asked)+len(admitted(p)) != 0 {
		t.Errorf("there is no room: %+v", p)
	}
	s.Remove(full)
	p := step(s)
	if !slices.Equal(p.Asked, []*Sequence{long}) || !slices.Equal(admitted(p), []*Sequence{short}) || len(long.Blocks()) != 0 || long.State() != Waiting {
		t.Errorf("%+v, %v with blocks %v", p, long.State(), long.Blocks())
	}
	if p := step(s); len(p.Asked) != 0 || !slices.Equal(admitted(p), []*Sequence{long}) {
		t.Errorf("and then: %+v", p)
	}
}

package batch

import (
	"slices"
	"testing"

	"meridian/kv"
)

var root = kv.Scope{Model: "m"}.Root()

func tokens(n int, from uint32) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = from + uint32(i)
	}
	return list
}

func sequence(prompt []uint32) *Sequence {
	return &Sequence{Tokens: slices.Clone(prompt), Prompt: len(prompt), Root: root}
}

func add(t *testing.T, s *Scheduler, list ...*Sequence) {
	t.Helper()
	if err := s.Add(list...); err != nil {
		t.Fatal(err)
	}
}

// step plans, commits, and appends a token to what has none left.
func step(s *Scheduler) Plan {
	p := s.Plan()
	s.Commit(p.Work)
	for _, w := range p.Work {
		if w.Last {
			s.Append(w.Sequence, 7)
		}
	}
	return p
}

func TestPromptsAreCutAndAnswersGoFirst(t *testing.T) {
	s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 4, MaxWaiting: 8, StepTokens: 10})
	long, short := sequence(tokens(25, 0)), sequence(tokens(3, 100))
	add(t, s, long, short)
	var got [][3]int
	for range 4 {
		for _, w := range step(s).Work {
			which := 0
			if w.Sequence == short {
				which = 1
			}
			got = append(got, [3]int{which, w.Start, w.Count})
		}
	}
	want := [][3]int{{0, 0, 10}, {0, 10, 10}, {0, 20, 5}, {1, 0, 3}, {0, 25, 1}, {1, 3, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if st := s.Stats(); st.Running != 2 || st.Waiting != 0 || st.Free != 64-7-1 {
		t.Errorf("%+v", st)
	}
}

func TestPromptsAreFoundAgain(t *testing.T) {
	s := New(Options{Blocks: 16, BlockTokens: 4, MaxRunning: 4, MaxWaiting: 8, StepTokens: 100})
	first := sequence(tokens(12, 0))
	add(t, s, first)
	step(s)
	kept := slices.Clone(first.Blocks())
	s.Remove(first)
	if st := s.Stats(); st.Cached != 3 || st.Free != 13 {
		t.Errorf("after the first: %+v", st)
	}
	// The block with the last token is not shared: it will be written.
	same, longer, stranger := sequence(tokens(12, 0)), sequence(tokens(14, 0)), sequence(tokens(12, 0))
	stranger.Root = kv.Scope{Model: "m", Salt: "x"}.Root()
	add(t, s, same, longer, stranger)
	p := s.Plan()
	for i, want := range []int{8, 12, 0} {
		if got := p.Admitted[i].Cached; got != want {
			t.Errorf("%d: %d tokens were there, want %d", i, got, want)
		}
	}
	if !slices.Equal(longer.Blocks()[:3], kept) || !slices.Equal(same.Blocks()[:2], kept[:2]) || same.Blocks()[2] == kept[2] {
		t.Errorf("blocks: %v, %v of %v", same.Blocks(), longer.Blocks(), kept)
	}
}

// TestWhatBeginsAlikeIsComputedOnce: one that comes while another computes what it begins
// with waits for exactly that, and others do not wait with it.
func TestWhatBeginsAlikeIsComputedOnce(t *testing.T) {
	s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 8, MaxWaiting: 8, StepTokens: 12})
	first := sequence(tokens(18, 0))
	add(t, s, first)
	step(s) // 12 of 18
	longer, fork, other := sequence(tokens(30, 0)), sequence(append(tokens(12, 0), 9, 9, 9, 9, 9, 9)), sequence(tokens(6, 100))
	stranger := sequence(tokens(18, 0))
	stranger.Root = kv.Scope{Model: "m", Salt: "x"}.Root()
	add(t, s, longer, fork, other, stranger)
	admitted := func(p Plan) (list []*Sequence) {
		for _, a := range p.Admitted {
			list = append(list, a.Sequence)
		}
		return list
	}
	if got := admitted(step(s)); !slices.Equal(got, []*Sequence{fork}) { // the budget ends with it
		t.Errorf("%d were admitted beside the first, want the fork alone", len(got))
	}
	p := step(s)
	if got := admitted(p); len(got) == 0 || got[0] != longer || p.Admitted[0].Cached != 16 {
		t.Errorf("then %+v were admitted, want the longer one with 16 tokens", p.Admitted)
	}
	for range 20 {
		step(s)
	}
	if other.Computed() == 0 || stranger.Computed() < 18 {
		t.Errorf("others have %d and %d tokens computed", other.Computed(), stranger.Computed())
	}
}

// TestNoneWaitsForWhatDoesNotCome: a sequence that leaves, or whose reader is slow, is
// not waited for.
func TestNoneWaitsForWhatDoesNotCome(t *testing.T) {
	for name, stop := range map[string]func(*Scheduler, *Sequence){
		"removed": func(s *Scheduler, q *Sequence) { s.Remove(q) },
		"paused":  func(s *Scheduler, q *Sequence) { s.Pause(q, SlowReader) },
	} {
		s := New(Options{Blocks: 64, BlockTokens: 4, MaxRunning: 8, MaxWaiting: 8, StepTokens: 8})
		first, second := sequence(tokens(18, 0)), sequence(tokens(18, 0))
		add(t, s, first)
		step(s)
		add(t, s, second)
		stop(s, first)
		if p := step(s); len(p.Admitted) != 1 || p.Admitted[0].Sequence != second || p.Admitted[0].Cached != 8 {
			t.Errorf("%s: %+v", name, p.Admitted)
		}
	}
}

func TestTheYoungestGoesAndComesBack(t *testing.T) {
	s := New(Options{Blocks: 6, BlockTokens: 4, MaxRunning: 4, MaxWaiting: 8, StepTokens: 100})
	old, young := sequence(tokens(7, 0)), sequence(tokens(7, 50))
	add(t, s, old, young)
	for range 30 {
		p := step(s)
		if slices.Contains(p.Preempted, old) {
			t.Fatal("the older one was thrown out")
		}
		if len(p.Preempted) > 0 {
			if young.State() != Waiting || young.Computed() != 0 || len(young.Tokens) < 8 {
				t.Fatalf("state %v, %d computed, %d tokens", young.State(), young.Computed(), len(young.Tokens))
			}
			s.Remove(old)
			p = step(s)
			if len(p.Work) != 1 || p.Work[0].Sequence != young || p.Work[0].Start == 0 {
				t.Fatalf("it does not go on with what is left of its blocks: %+v", p.Work)
			}
			return
		}
	}
	t.Fatal("no sequence was thrown out")
}

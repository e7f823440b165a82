package batch

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

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

// TestNobodyWaitsForWhatDoesNotCome: a sequence that leaves, or whose reader is slow, is
// not waited for.
func TestNobodyWaitsForWhatDoesNotCome(t *testing.T) {
	for name, stop := range map[string]func(*Scheduler, *Sequence){
		"removed": func(s *Scheduler, q *Sequence) { s.Remove(q) },
		"paused":  func(s *Scheduler, q *Sequence) { s.Pause(q, true) },
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
	t.Fatal("nobody was thrown out")
}

func TestRefusals(t *testing.T) {
	s := New(Options{Blocks: 4, BlockTokens: 4, MaxRunning: 1, MaxWaiting: 2, StepTokens: 4})
	if err := s.Add(sequence(tokens(17, 0))); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	if err := s.Add(sequence(tokens(1, 0)), sequence(tokens(1, 0)), sequence(tokens(1, 0))); !errors.Is(err, ErrFull) {
		t.Errorf("too many: %v", err)
	}
	if st := s.Stats(); st.Waiting != 0 {
		t.Errorf("something was added: %+v", st)
	}
	if (Options{Blocks: 1, BlockTokens: 1, MaxRunning: 8, MaxWaiting: 1, StepTokens: 4}).Validate() == nil || (Options{}).Validate() == nil {
		t.Error("impossible options are valid")
	}
}

// world drives a scheduler and plays the memory: each slot of a block remembers
// which text it is of.
type world struct {
	t         *rapid.T
	s         *Scheduler
	o         Options
	memory    [][]uint64
	alive     []*Sequence
	fetches   map[*Sequence]*Hold // the door is at work
	holds     []*Hold             // offers, and intakes that failed: the door may still write these
	finished  int
	preempted int
}

// fingerprint is of the text up to and with a position.
func fingerprint(tokens []uint32) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range tokens {
		h = (h ^ uint64(t+1)) * 1099511628211
	}
	return h
}

func (w *world) slot(q []uint32, position int) *uint64 {
	return &w.memory[q[position/w.o.BlockTokens]][position%w.o.BlockTokens]
}

func (w *world) add() {
	alphabet := rapid.SampledFrom([]uint32{1, 1, 2}).Draw(w.t, "letters")
	prompt := make([]uint32, rapid.IntRange(1, 5*w.o.BlockTokens).Draw(w.t, "prompt"))
	for i := range prompt {
		prompt[i] = uint32(i) % (alphabet + 1) * uint32(i/7)
	}
	list := []*Sequence{sequence(prompt)}
	for range rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(w.t, "followers") {
		q := sequence(prompt)
		q.Leader = list[0]
		list = append(list, q)
	}
	if rapid.IntRange(0, 3).Draw(w.t, "resumed") == 0 {
		list[0].Tokens = append(list[0].Tokens, tokens(rapid.IntRange(1, 6).Draw(w.t, "resume"), 40)...)
	}
	switch rapid.IntRange(0, 5).Draw(w.t, "fetch") {
	case 0:
		list[0].Fetch = list[0].Prompt
	case 1: // a run, of any length
		list[0].Fetch = rapid.IntRange(1, len(list[0].Tokens)).Draw(w.t, "run")
		list[0].FetchFrom = rapid.IntRange(0, list[0].Fetch-1).Draw(w.t, "from") // what was here may be gone
	}
	if cached := w.s.Cached(list[0]); cached > len(list[0].Tokens)-1 || cached%w.o.BlockTokens != 0 {
		w.t.Fatalf("%d of %d tokens are there", cached, len(list[0].Tokens))
	}
	if w.s.Add(list...) == nil {
		w.alive = append(w.alive, list...)
	}
}

func (w *world) step() Plan {
	p := w.s.Plan()
	for _, a := range p.Admitted {
		if a.Fetch {
			w.fetches[a.Sequence] = a.Hold
		}
	}
	w.preempted += len(p.Preempted)
	budget := 0
	for _, work := range p.Work {
		w.compute(work, p.Work)
		budget += work.Count
	}
	if budget > w.o.StepTokens {
		w.t.Fatalf("a step of %d tokens, at most %d", budget, w.o.StepTokens)
	}
	w.s.Commit(p.Work)
	for _, work := range p.Work {
		if !work.Last {
			continue
		}
		q := work.Sequence
		if len(q.Tokens)-q.Prompt > 8 || !w.s.Fits(len(q.Tokens)+1) {
			if rapid.Bool().Draw(w.t, "offer") {
				w.holds = append(w.holds, w.s.Hold(q, rapid.IntRange(1, q.Computed()).Draw(w.t, "kept")))
			}
			w.remove(q)
			w.finished++
			continue
		}
		if full := q.Computed() / w.o.BlockTokens * w.o.BlockTokens; full > 0 && rapid.IntRange(0, 9).Draw(w.t, "keep") == 0 {
			w.holds = append(w.holds, w.s.Hold(q, full)) // it goes on behind them
		}
		w.s.Append(q, uint32(len(q.Tokens)))
	}
	return p
}

func (w *world) compute(work Work, all []Work) {
	q := work.Sequence
	for position := range work.Start {
		if *w.slot(q.Blocks(), position) != fingerprint(q.Tokens[:position+1]) {
			w.t.Fatalf("position %d of %v is not what it should be", position, q.Tokens)
		}
	}
	for position := work.Start; position < work.Start+work.Count; position++ {
		block := q.Blocks()[position/w.o.BlockTokens]
		if w.s.pool.Named(block) || w.s.pool.references[block] != 1 {
			w.t.Fatalf("block %d is written, but others may read it", block)
		}
		for _, other := range all {
			if other.Sequence != q && slices.Contains(other.Sequence.Blocks(), block) {
				w.t.Fatalf("block %d is in two slices", block)
			}
		}
		*w.slot(q.Blocks(), position) = fingerprint(q.Tokens[:position+1])
	}
}

func (w *world) remove(q *Sequence) {
	w.s.Remove(q)
	if h := w.fetches[q]; h != nil {
		delete(w.fetches, q)
		w.holds = append(w.holds, h) // until the door lets go
	}
	w.alive = slices.DeleteFunc(w.alive, func(other *Sequence) bool { return other == q })
}

// fetched ends the hand-off of q.
func (w *world) fetched(q *Sequence, ready bool) {
	h := w.fetches[q]
	delete(w.fetches, q)
	if !ready {
		w.s.Unfetched(q)
		w.holds = append(w.holds, h)
		return
	}
	for position := q.FetchFrom; position < q.Fetch; position++ {
		*w.slot(h.Blocks(), position) = fingerprint(q.Tokens[:position+1])
	}
	w.s.Fetched(q)
	w.s.Release(h)
}

func (w *world) release(i int) {
	w.s.Release(w.holds[i])
	w.holds = slices.Delete(w.holds, i, i+1)
}

func (w *world) check() {
	references := make([]int32, w.o.Blocks)
	count := func(blocks []uint32) {
		for _, b := range blocks {
			references[b]++
		}
	}
	for _, q := range w.alive {
		count(q.blocks)
	}
	held := make(map[uint32]bool)
	for _, h := range append(slices.Clone(w.holds), values(w.fetches)...) {
		count(h.Blocks())
		for _, b := range h.Blocks() {
			held[b] = true
		}
	}
	if !slices.Equal(references, w.s.pool.references) {
		w.t.Fatalf("references are %v, want %v", w.s.pool.references, references)
	}
	used := 0
	for _, n := range references {
		if n > 0 {
			used++
		}
	}
	if st := w.s.Stats(); st.Free+st.Cached+used != st.Total || st.Held != len(held) || st.Fetching != len(w.fetches) ||
		st.Running+st.Waiting+st.Fetching != len(w.alive) || st.Running > w.o.MaxRunning {
		w.t.Fatalf("%+v, %d used, %d held, %d alive", st, used, len(held), len(w.alive))
	}
}

func values(m map[*Sequence]*Hold) []*Hold {
	var list []*Hold
	for _, h := range m {
		list = append(list, h)
	}
	return list
}

// oldest is the first fetch to have begun, so that draws do not depend on the
// order of a map.
func (w *world) oldest() *Sequence {
	var first *Sequence
	for q := range w.fetches {
		if first == nil || q.arrival < first.arrival {
			first = q
		}
	}
	return first
}

func TestNoBlockIsLostAndNoTextIsMixedUp(t *testing.T) {
	totalPreempted, totalFinished := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Blocks: rapid.IntRange(6, 24).Draw(t, "blocks"), BlockTokens: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "block"),
			MaxRunning: rapid.IntRange(1, 5).Draw(t, "running"), MaxWaiting: 12, FetchTokens: 3,
		}
		o.StepTokens = o.MaxRunning + rapid.IntRange(0, 12).Draw(t, "budget")
		w := &world{t: t, s: New(o), o: o, memory: make([][]uint64, o.Blocks), fetches: make(map[*Sequence]*Hold)}
		for i := range w.memory {
			w.memory[i] = make([]uint64, o.BlockTokens)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { w.check() },
			"add": func(t *rapid.T) {
				w.t = t
				w.add()
			},
			"step": func(t *rapid.T) {
				w.t = t
				w.step()
			},
			"cancel": func(t *rapid.T) {
				if len(w.alive) > 0 {
					w.remove(w.alive[rapid.IntRange(0, len(w.alive)-1).Draw(t, "who")])
				}
			},
			"pause": func(t *rapid.T) {
				if len(w.alive) > 0 {
					w.s.Pause(w.alive[rapid.IntRange(0, len(w.alive)-1).Draw(t, "who")], rapid.Bool().Draw(t, "paused"))
				}
			},
			"door": func(t *rapid.T) {
				if q := w.oldest(); q != nil {
					w.fetched(q, rapid.Bool().Draw(t, "ready"))
				}
			},
			"scribble": func(t *rapid.T) {
				for _, h := range values(w.fetches) {
					for position := range len(h.Blocks()) {
						if b := h.Blocks()[position]; !w.s.pool.Named(b) {
							w.memory[b][0] = 13
						}
					}
				}
			},
			"free": func(t *rapid.T) {
				if len(w.holds) > 0 {
					w.release(rapid.IntRange(0, len(w.holds)-1).Draw(t, "which"))
				}
			},
		})
		w.drain()
		totalPreempted += w.preempted
		totalFinished += w.finished
	})
	if totalPreempted == 0 || totalFinished == 0 {
		t.Errorf("%d were preempted and %d finished: the test tests too little", totalPreempted, totalFinished)
	}
}

// drain: once nobody is paused and the door lets go, everybody finishes, and all
// blocks are there.
func (w *world) drain() {
	for _, q := range w.alive {
		w.s.Pause(q, false)
	}
	for steps := 0; len(w.alive) > 0; steps++ {
		for len(w.fetches) > 0 {
			w.fetched(w.oldest(), false)
		}
		for len(w.holds) > 0 {
			w.release(0)
		}
		if steps > 5000 {
			w.t.Fatalf("%d sequences do not finish: %+v", len(w.alive), w.s.Stats())
		}
		w.step()
	}
	for len(w.holds) > 0 {
		w.release(0)
	}
	w.check()
	if st := w.s.Stats(); st.Free+st.Cached != st.Total || st.Held != 0 {
		w.t.Fatalf("blocks are lost: %+v", st)
	}
}

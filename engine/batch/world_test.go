package batch

import (
	"flag"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world drives a scheduler and plays the memory: each slot of a block remembers
// which text it is of.
type world struct {
	t         *rapid.T
	s         *Scheduler
	o         Options
	memory    [][]uint64
	alive     []*Sequence
	forks     []*Sequence
	fetches   map[*Sequence]*Hold // the door is at work
	holds     []*held             // offers, and accepts that failed: the door may still write these
	paused    map[*Sequence]PauseReason
	order     Order
	finished  int
	preempted int // by plans
	forked    int // forks that were computed
	dropped   int // forks for which there was no room any more
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
	for _, f := range p.Dropped {
		if f.State() != Absent {
			w.t.Fatalf("a dropped fork is in state %v", f.State())
		}
		w.forks = slices.DeleteFunc(w.forks, func(other *Sequence) bool { return other == f })
		w.dropped++
	}
	budget := 0
	for _, work := range p.Work {
		if w.paused[work.Sequence] != 0 {
			w.t.Fatalf("one is computed that is paused: %d", w.paused[work.Sequence])
		}
		w.compute(work)
		budget += work.Count
	}
	if budget > w.o.StepTokens {
		w.t.Fatalf("a step of %d tokens, at most %d", budget, w.o.StepTokens)
	}
	w.served(p, budget)
	w.s.Commit(p.Work)
	for _, work := range p.Work {
		if !work.Last {
			continue
		}
		q := work.Sequence
		if slices.Contains(w.forks, q) {
			w.unfork(q)
			w.forked++
			continue
		}
		if len(q.Tokens)-q.Prompt > 8 || !w.s.Fits(len(q.Tokens)+1) {
			if rapid.Bool().Draw(w.t, "offer") {
				w.hold(q)
			}
			w.remove(q)
			w.finished++
			continue
		}
		w.s.Append(q, uint32(len(q.Tokens)))
	}
	return p
}

func (w *world) compute(work Work) {
	q := work.Sequence
	for position := range work.Start {
		if *w.slot(q.Blocks(), position) != fingerprint(q.Tokens[:position+1]) {
			w.t.Fatalf("position %d of %v is not what it should be", position, q.Tokens)
		}
	}
	for position := work.Start; position < work.Start+work.Count; position++ {
		block := q.Blocks()[position/w.o.BlockTokens]
		if w.s.pool.Named(block) {
			w.t.Fatalf("block %d is written, but others may find it", block)
		}
		for _, other := range slices.Concat(w.alive, w.forks) {
			if other != q && slices.Contains(other.Blocks(), block) {
				w.t.Fatalf("block %d is written, and in two sequences", block)
			}
		}
		*w.slot(q.Blocks(), position) = fingerprint(q.Tokens[:position+1])
	}
}

func (w *world) remove(q *Sequence) {
	w.s.Remove(q)
	if h := w.fetches[q]; h != nil {
		delete(w.fetches, q)
		w.holds = append(w.holds, &held{hold: h}) // until the door lets go
	}
	delete(w.paused, q)
	w.alive = slices.DeleteFunc(w.alive, func(other *Sequence) bool { return other == q })
}

// fetched ends the hand-off of q.
func (w *world) fetched(q *Sequence, ready bool) {
	h := w.fetches[q]
	delete(w.fetches, q)
	if !ready {
		w.s.Unfetched(q)
		w.holds = append(w.holds, &held{hold: h})
		return
	}
	for position := q.FetchFrom; position < q.Fetch; position++ {
		*w.slot(h.Blocks(), position) = fingerprint(q.Tokens[:position+1])
	}
	w.s.Fetched(q)
	w.s.Release(h)
}

func (w *world) release(i int) {
	w.s.Release(w.holds[i].hold)
	w.holds = slices.Delete(w.holds, i, i+1)
}

func (w *world) check() {
	references := make([]int32, w.o.Blocks)
	count := func(blocks []uint32) {
		for _, b := range blocks {
			references[b]++
		}
	}
	for _, q := range slices.Concat(w.alive, w.forks) {
		count(q.blocks)
	}
	kept := make(map[uint32]bool)
	keep := func(h *Hold) {
		count(h.Blocks())
		for _, b := range h.Blocks() {
			kept[b] = true
		}
	}
	for _, h := range w.fetches {
		keep(h)
	}
	for _, h := range w.holds {
		keep(h.hold)
		for position := range h.text {
			if *w.slot(h.hold.Blocks(), position) != fingerprint(h.text[:position+1]) {
				w.t.Fatalf("position %d of a held text has changed", position)
			}
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
	if st := w.s.Stats(); st.Free+st.Cached+used != st.Total || st.Held != len(kept) || st.Forks != len(w.forks) || st.Fetching != len(w.fetches) ||
		st.Running+st.Waiting+st.Fetching != len(w.alive) {
		w.t.Fatalf("%+v, %d used, %d held, %d alive", st, used, len(kept), len(w.alive))
	}
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

// moreOf makes rapid try more, unless a flag asks for a number.
func moreOf(t *testing.T, name, value string) {
	t.Helper()
	f := flag.Lookup(name)
	before := f.Value.String()
	if before != f.DefValue {
		return
	}
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, before) })
}

func TestNoBlockIsLostAndNoTextIsMixedUp(t *testing.T) {
	moreOf(t, "rapid.checks", "2000")
	moreOf(t, "rapid.steps", "60")
	totalPreempted, totalFinished, totalForked, totalDropped := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Blocks: rapid.IntRange(6, 24).Draw(t, "blocks"), BlockTokens: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "block"),
			MaxRunning: rapid.IntRange(1, 5).Draw(t, "running"), MaxWaiting: 12, FetchTokens: 3,
		}
		o.StepTokens = o.MaxRunning + rapid.IntRange(0, 12).Draw(t, "budget")
		w := &world{t: t, s: New(o), o: o, memory: make([][]uint64, o.Blocks), fetches: make(map[*Sequence]*Hold), paused: make(map[*Sequence]PauseReason)}
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
				w.t = t
				if q := w.one(); q != nil {
					w.remove(q)
				}
			},
			"pause": func(t *rapid.T) {
				w.t = t
				if q := w.one(); q != nil {
					reason := rapid.SampledFrom([]PauseReason{SlowReader, Governed}).Draw(t, "reason")
					if rapid.Bool().Draw(t, "paused") {
						w.s.Pause(q, reason)
						w.paused[q] |= reason
					} else {
						w.s.Unpause(q, reason)
						w.paused[q] &^= reason
					}
				}
			},
			"obey": func(t *rapid.T) {
				w.t = t
				w.obey()
			},
			"preempt": func(t *rapid.T) {
				w.t = t
				w.preempt()
			},
			"fork": func(t *rapid.T) {
				w.t = t
				w.fork()
			},
			"hold": func(t *rapid.T) {
				w.t = t
				if q := w.one(); q != nil {
					w.hold(q)
				}
			},
			"door": func(t *rapid.T) {
				if q := w.oldest(); q != nil {
					w.fetched(q, rapid.Bool().Draw(t, "ready"))
				}
			},
			"scribble": func(t *rapid.T) {
				for _, h := range w.fetches {
					w.scribble(h)
				}
				for _, h := range w.holds {
					if h.text == nil {
						w.scribble(h.hold)
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
		totalForked += w.forked
		totalDropped += w.dropped
	})
	if totalPreempted == 0 || totalFinished == 0 || totalForked == 0 || totalDropped == 0 {
		t.Errorf("%d were preempted and %d finished, %d forks were computed and %d dropped: the test tests too little", totalPreempted, totalFinished, totalForked, totalDropped)
	}
}

// drain: once no sequence is paused and the door lets go, all of them finish, and all
// blocks are there.
func (w *world) drain() {
	for _, q := range w.alive {
		w.s.Unpause(q, SlowReader|Governed)
		delete(w.paused, q)
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
	for len(w.forks) > 0 {
		w.unfork(w.forks[0])
	}
	w.check()
	if st := w.s.Stats(); st.Free+st.Cached != st.Total || st.Held != 0 {
		w.t.Fatalf("blocks are lost: %+v", st)
	}
}

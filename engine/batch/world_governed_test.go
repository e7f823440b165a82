package batch

import (
	"slices"

	"pgregory.net/rapid"
)

// held is a hold, and the text whose cache it keeps; nil: the door may write it.
type held struct {
	hold *Hold
	text []uint32
}

// hold keeps some of what is computed of q.
func (w *world) hold(q *Sequence) {
	asked := rapid.IntRange(0, len(q.Tokens)+1).Draw(w.t, "kept")
	h := w.s.Hold(q, asked)
	if h.Tokens() != min(asked, q.Computed()) || len(h.Blocks()) != w.s.blocksFor(h.Tokens()) {
		w.t.Fatalf("a hold of %d tokens of %d has %d, %d blocks", asked, q.Computed(), h.Tokens(), len(h.Blocks()))
	}
	w.holds = append(w.holds, &held{h, append([]uint32{}, q.Tokens[:h.Tokens()]...)})
}

// one draws one of those that live, or nil.
func (w *world) one() *Sequence {
	if len(w.alive) == 0 {
		return nil
	}
	return w.alive[rapid.IntRange(0, len(w.alive)-1).Draw(w.t, "who")]
}

// obey draws an order. Some of whom it names may have gone, or be named twice.
func (w *world) obey() {
	var o Order
	for range rapid.IntRange(0, 4).Draw(w.t, "named") {
		if q := w.one(); q != nil {
			o.Run = append(o.Run, Allotment{q, rapid.IntRange(0, 6).Draw(w.t, "tokens")})
		}
	}
	for _, f := range w.forks {
		if rapid.Bool().Draw(w.t, "with") {
			o.Run = append(o.Run, Allotment{Sequence: f})
		}
	}
	for range rapid.IntRange(0, 3).Draw(w.t, "victims") {
		if q := w.one(); q != nil {
			o.Victims = append(o.Victims, q)
		}
	}
	w.order = o
	w.s.Obey(o)
}

// served: each sequence that runs and is not paused has what the order lets it have, or
// the step is full, of tokens or of sequences. An order leaves none out.
func (w *world) served(p Plan, budget int) {
	seats := 0
	for _, work := range p.Work {
		if !work.Sequence.fork {
			seats++
		}
	}
	if seats > w.o.MaxRunning {
		w.t.Fatalf("%d sequences in a step, at most %d", seats, w.o.MaxRunning)
	}
	if budget == w.o.StepTokens || seats == w.o.MaxRunning || len(p.Preempted) > 0 {
		return
	}
	for _, q := range slices.Concat(w.alive, w.forks) {
		want := q.missing()
		if i := slices.IndexFunc(w.order.Run, func(a Allotment) bool { return a.Sequence == q }); i >= 0 && w.order.Run[i].Tokens > 0 {
			want = min(want, w.order.Run[i].Tokens)
		}
		if q.State() == Running && w.paused[q] == 0 && q.planned != want {
			w.t.Fatalf("%d tokens of one are computed, want %d: the step has %d of %d", q.planned, want, budget, w.o.StepTokens)
		}
	}
}

// fork probes behind one of those that run.
func (w *world) fork() {
	q := w.one()
	if q == nil {
		return
	}
	extra := tokens(rapid.IntRange(0, 3).Draw(w.t, "extra"), 90)
	f, forked := w.s.Fork(q, extra...)
	if forked {
		if !slices.Equal(f.Tokens, append(slices.Clone(q.Tokens), extra...)) || f.Computed() < q.Computed()/w.o.BlockTokens*w.o.BlockTokens-w.o.BlockTokens {
			w.t.Fatalf("a fork of %v with %v is %v, %d computed", q.Tokens, extra, f.Tokens, f.Computed())
		}
		w.forks = append(w.forks, f)
		if rapid.Bool().Draw(w.t, "stays") { // until there is no room for it any more
			w.s.Pause(f, Governed)
			w.paused[f] = Governed
		}
	}
}

// preempt takes the blocks of one, which may come back from elsewhere.
func (w *world) preempt() {
	q := w.one()
	if q == nil {
		return
	}
	may := len(q.Blocks()) > 0 && q.State() != Fetching
	if w.s.Preempt(q) != may || may && (q.State() != Waiting || q.Computed() != 0 || len(q.Blocks()) != 0) {
		w.t.Fatalf("preempted: %v in state %v, %d computed", may, q.State(), q.Computed())
	}
	if may && rapid.Bool().Draw(w.t, "recall") {
		q.Fetch = len(q.Tokens) / w.o.BlockTokens * w.o.BlockTokens
		q.FetchFrom = 0
	}
}

// unfork throws a fork away.
func (w *world) unfork(f *Sequence) {
	w.s.Remove(f)
	w.forks = slices.DeleteFunc(w.forks, func(other *Sequence) bool { return other == f })
}

// scribble is the door at work on what it was given to write.
func (w *world) scribble(h *Hold) {
	for _, b := range h.Blocks() {
		if !w.s.pool.Named(b) {
			w.memory[b][0] = 13
		}
	}
}

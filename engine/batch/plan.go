package batch

import "slices"

// Plan is what a step does.
type Plan struct {
	Work []Work
	// Admitted have got their blocks.
	Admitted []Admission
	// Preempted lost theirs, and wait.
	Preempted []*Sequence
	// Dropped are forks that lost theirs, and are removed. There may be room for
	// others in the next plan.
	Dropped []*Sequence
	// Asked would be let in now, and wanted to be asked about before.
	Asked []*Sequence
}

// Work is tokens of one sequence: Count of them from Start on.
type Work struct {
	Sequence     *Sequence
	Start, Count int
	// Last: no known token follows, so the next one is to be found out.
	Last bool
}

// Admission is a sequence that is computed from now on, or fetched.
type Admission struct {
	Sequence *Sequence
	// Cached is how many of its tokens were there.
	Cached int
	// Fetch: its blocks wait for a cache, and those that do are held by Hold.
	Fetch bool
	Hold  *Hold
	// Declined: it was to be fetched, but most of it was there.
	Declined bool
	// Outdated: it was to be fetched, but what was here before it is not any more.
	Outdated bool
}

// draft is a plan in the making.
type draft struct {
	Plan
	budget  int  // tokens that are left of the step
	seats   int  // sequences that it may compute besides
	blocked bool // one that waits did not fit
}

// Plan decides the next step. Commit must follow before the next Plan, unless
// there is no work.
func (s *Scheduler) Plan() Plan {
	d := draft{budget: s.options.StepTokens, seats: s.options.MaxRunning}
	for _, a := range s.order.Run {
		switch a.Sequence.state {
		case Running:
			s.run(a.Sequence, &d)
		case Waiting:
			s.admit(a.Sequence, &d)
		}
	}
	for _, answering := range []bool{true, false} {
		for _, q := range s.snapshot(s.running) {
			if (q.missing() == 1) == answering {
				s.run(q, &d)
			}
		}
	}
	for _, q := range s.forks {
		s.run(q, &d)
	}
	for _, q := range s.snapshot(s.waiting) {
		s.admit(q, &d)
	}
	if d.blocked && s.seated() < s.options.MaxRunning {
		s.dropStanding(&d)
	}
	for _, list := range [][]*Sequence{s.running, s.forks} {
		for _, q := range list {
			if q.planned > 0 {
				d.Work = append(d.Work, Work{Sequence: q, Start: q.computed, Count: q.planned, Last: q.planned == q.missing()})
			}
		}
	}
	return d.Plan
}

// snapshot is a list that does not change while a plan moves sequences. It is
// good until the next one.
func (s *Scheduler) snapshot(list []*Sequence) []*Sequence {
	s.scratch = append(s.scratch[:0], list...)
	return s.scratch
}

// run plans tokens of q, unless it is planned already or had to go since.
func (s *Scheduler) run(q *Sequence, d *draft) {
	count := min(q.wanted(), d.budget)
	if q.state != Running || q.pauses != 0 || q.planned > 0 || d.seats < 1 && !q.fork {
		return
	}
	if s.grow(q, q.computed+count, d) {
		d.plan(q, count)
	}
}

// plan gives q tokens of the step, and a seat in it.
func (d *draft) plan(q *Sequence, count int) {
	q.planned = count
	d.budget -= count
	if count > 0 && !q.fork {
		d.seats--
	}
}

// unplan takes back what q has of the step.
func (d *draft) unplan(q *Sequence) {
	d.budget += q.planned
	if q.planned > 0 && !q.fork {
		d.seats++
	}
	q.planned = 0
}

// Commit says that the work of a plan is computed.
func (s *Scheduler) Commit(work []Work) {
	for _, w := range work {
		q := w.Sequence
		q.computed += q.planned // 0: it was removed meanwhile
		q.planned = 0
		q.prompted = q.prompted || q.computed >= q.Prompt
		if !q.fork {
			s.name(q)
		}
	}
}

// grow gives q blocks for so many tokens. If there are not enough, others have to
// go; false means that q itself was one of them, or that it is a fork, for which
// no sequence has to.
func (s *Scheduler) grow(q *Sequence, tokens int, d *draft) bool {
	for {
		more := s.blocksFor(tokens) - len(q.blocks)
		if more <= s.pool.Available() {
			q.blocks = s.pool.Take(q.blocks, more)
			return true
		}
		if q.fork {
			return false
		}
		victim := s.victim()
		d.unplan(victim)
		if s.evict(victim); victim.fork {
			d.Dropped = append(d.Dropped, victim)
		} else {
			d.Preempted = append(d.Preempted, victim)
		}
		if victim == q {
			return false
		}
	}
}

// admit lets q in. After one that does not fit only
// those follow that have their blocks already: a long one is not overtaken for ever
// by short ones, and does not wait for blocks of one that waits behind it. No sequence
// is let in by a plan for which another had to go, nor one that was asked about in it.
func (s *Scheduler) admit(q *Sequence, d *draft) {
	if d.budget < 1 || len(d.Preempted) > 0 || q.pauses != 0 || q.needsLeader() || d.blocked && len(q.blocks) == 0 || slices.Contains(d.Asked, q) || s.comes(q) {
		return
	}
	a := Admission{Sequence: q}
	if !s.settle(q, &a, d.seats > 0) {
		d.blocked = true
		return
	}
	if q.Ask && !a.Fetch {
		q.Ask = false
		if q.missing() > s.options.FetchTokens {
			s.drop(q)
			d.Asked = append(d.Asked, q)
			return
		}
	}
	s.waiting = without(s.waiting, q)
	if a.Fetch {
		q.state = Fetching
		s.fetching++
		a.Hold = s.hold(q, q.Fetch)
	} else {
		q.Fetch = 0
		q.state = Running
		s.running = inserted(s.running, q)
		d.plan(q, min(q.wanted(), d.budget))
	}
	d.Admitted = append(d.Admitted, a)
}

// comes reports whether a sequence that runs is to compute the first block that q lacks:
// q would compute the same beside it, and finds it when it waits. One that runs came
// earlier and is served before q, so that q loses nothing, and each step brings its next
// block nearer.
func (s *Scheduler) comes(q *Sequence) bool {
	if len(q.blocks) > 0 {
		return false
	}
	size := s.options.BlockTokens
	first := s.Cached(q) / size
	if first >= (len(q.Tokens)-1)/size || q.Fetch > first*size { // it has all, or is sent it sooner
		return false
	}
	return slices.ContainsFunc(s.running, func(r *Sequence) bool {
		// Of r's known tokens, those that end a block behind what is computed.
		return r.pauses == 0 && r.computed < (first+1)*size && (first+1)*size <= len(r.Tokens) && r.key(first, size) == q.key(first, size)
	})
}

// seated is how many of those that run have a place of MaxRunning. Whom a governor has wait
// has none, or the others that it wants to run instead could not. When it goes on, more
// may be there than have a place in a step: the last wait for the next.
func (s *Scheduler) seated() int {
	n := 0
	for _, q := range s.running {
		if q.pauses&Governed == 0 {
			n++
		}
	}
	return n
}

// settle finds room and blocks for q, or leaves it as it was. In a step without a seat it
// may be fetched only.
func (s *Scheduler) settle(q *Sequence, a *Admission, seat bool) bool {
	canRun := seat && s.seated() < s.options.MaxRunning
	switch {
	case len(q.blocks) > 0:
		return canRun
	case q.Fetch == 0:
		return canRun && s.place(q, a)
	case s.fetching >= s.options.MaxRunning || !s.place(q, a):
		return false
	case !a.Fetch && !canRun:
		s.drop(q)
		return false
	}
	return true
}

// place gives q the blocks of its tokens: those that are there, and new ones. It
// leaves one for every sequence that has a seat, so that the newcomer is not thrown
// out at once.
func (s *Scheduler) place(q *Sequence, a *Admission) bool {
	size := s.options.BlockTokens
	var found []uint32
	idle := 0
	// The last token is always computed, for what follows it, and it must not
	// lie in a block that others read: hence the -1.
	for i := range (len(q.Tokens) - 1) / size {
		b, there := s.pool.Find(q.key(i, size))
		if !there {
			break
		}
		if s.pool.Idle(b) {
			idle++
		}
		found = append(found, b)
	}
	more := s.blocksFor(len(q.Tokens)) - len(found)
	if more+idle+s.seated() > s.pool.Available() {
		return false
	}
	for _, b := range found {
		s.pool.Share(b)
	}
	q.blocks = s.pool.Take(append(q.blocks[:0], found...), more)
	q.computed, q.named = len(found)*size, len(found)
	a.Cached = q.computed
	if q.Fetch > 0 {
		a.Outdated = q.computed < q.FetchFrom
		a.Declined = !a.Outdated && q.computed > 0 && q.Fetch-q.computed < s.options.FetchTokens
		a.Fetch = !a.Outdated && !a.Declined
	}
	return true
}

// Cached is how many tokens of q, which was not added yet, are there.
func (s *Scheduler) Cached(q *Sequence) int {
	size, found := s.options.BlockTokens, 0
	for i := range (len(q.Tokens) - 1) / size {
		if _, there := s.pool.Find(q.key(i, size)); !there {
			break
		}
		found += size
	}
	return found
}

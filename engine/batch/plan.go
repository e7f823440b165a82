package batch

import "slices"

// Plan is what a step does.
type Plan struct {
	Work []Work
	// Admitted have got their blocks.
	Admitted []Admission
	// Preempted lost theirs, and wait.
	Preempted []*Sequence
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

// Plan decides the next step. Commit must follow before the next Plan, unless
// there is no work.
func (s *Scheduler) Plan() Plan {
	var p Plan
	budget := s.options.StepTokens
	for _, answering := range []bool{true, false} {
		for i := 0; i < len(s.running); i++ {
			q := s.running[i]
			missing := q.missing()
			if q.paused || (missing == 1) != answering || missing < 1 || budget < 1 {
				continue
			}
			count := min(missing, budget)
			if !s.grow(q, q.computed+count, &p) {
				i-- // q was the youngest and is gone
				continue
			}
			q.planned = count
			budget -= count
		}
	}
	if len(p.Preempted) == 0 {
		s.admit(&p, budget)
	}
	for _, q := range s.running {
		if q.planned > 0 {
			p.Work = append(p.Work, Work{Sequence: q, Start: q.computed, Count: q.planned, Last: q.planned == q.missing()})
		}
	}
	return p
}

// Commit says that the work of a plan is computed.
func (s *Scheduler) Commit(work []Work) {
	for _, w := range work {
		q := w.Sequence
		if q.state != Running || q.planned == 0 {
			continue // removed meanwhile
		}
		q.computed += q.planned
		q.planned = 0
		q.prompted = q.prompted || q.computed >= q.Prompt
		s.name(q)
	}
}

// grow gives q blocks for so many tokens. If there are not enough, the youngest
// go; false means that q itself was one of them.
func (s *Scheduler) grow(q *Sequence, tokens int, p *Plan) bool {
	for {
		more := s.blocksFor(tokens) - len(q.blocks)
		if more <= s.pool.Available() {
			q.blocks = s.pool.Take(q.blocks, max(more, 0))
			return true
		}
		victim := s.youngest()
		s.preempt(victim, p)
		if victim == q {
			return false
		}
	}
}

// youngest is the last to come of those that have blocks to give up. There is
// always one when grow asks: the one that grows.
func (s *Scheduler) youngest() *Sequence {
	var victim *Sequence
	if n := len(s.running); n > 0 {
		victim = s.running[n-1]
	}
	for _, q := range s.waiting {
		if len(q.blocks) > 0 && (victim == nil || q.arrival > victim.arrival) {
			victim = q
		}
	}
	return victim
}

func (s *Scheduler) preempt(q *Sequence, p *Plan) {
	s.drop(q)
	if q.state == Running {
		s.running = without(s.running, q)
		q.state = Waiting
		s.waiting = inserted(s.waiting, q)
	}
	p.Preempted = append(p.Preempted, q)
}

// admit lets sequences in, in the order in which they came. After one that does
// not fit only those follow that have their blocks already: a long one is not
// overtaken for ever by short ones, and does not wait for blocks of one that
// waits behind it.
func (s *Scheduler) admit(p *Plan, budget int) {
	blocked := false
	for i := 0; i < len(s.waiting) && budget > 0; {
		q := s.waiting[i]
		if q.paused || q.needsLeader() || blocked && len(q.blocks) == 0 || s.comes(q) {
			i++
			continue
		}
		a := Admission{Sequence: q}
		if !s.settle(q, &a) {
			blocked = true
			i++
			continue
		}
		s.waiting = slices.Delete(s.waiting, i, i+1)
		if a.Fetch {
			q.state = Fetching
			s.fetching++
			a.Hold = s.Hold(q, q.Fetch)
		} else {
			q.Fetch = 0
			q.state = Running
			s.running = inserted(s.running, q)
			q.planned = min(q.missing(), budget)
			budget -= q.planned
		}
		p.Admitted = append(p.Admitted, a)
	}
}

// comes reports whether a sequence that runs is to compute the first block that q lacks:
// q would compute the same beside it, and finds it when it waits. One that runs came
// earlier and is served before q, so that q loses nothing, and each step brings its next
// block nearer.
func (s *Scheduler) comes(q *Sequence) bool {
	if len(q.blocks) > 0 || len(s.running) == 0 {
		return false
	}
	size := s.options.BlockTokens
	first := s.Cached(q) / size
	if first >= (len(q.Tokens)-1)/size || q.Fetch > first*size { // it has all, or is sent it sooner
		return false
	}
	return slices.ContainsFunc(s.running, func(r *Sequence) bool {
		// Of r's known tokens, those that end a block behind what is computed.
		return !r.paused && r.computed < (first+1)*size && (first+1)*size <= len(r.Tokens) && r.key(first, size) == q.key(first, size)
	})
}

// settle finds room and blocks for q, or leaves it as it was.
func (s *Scheduler) settle(q *Sequence, a *Admission) bool {
	canRun := len(s.running) < s.options.MaxRunning
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
// leaves one for every sequence that runs, so that the newcomer is not thrown
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
	if more+idle+len(s.running) > s.pool.Available() {
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

package batch

import "slices"

// Order is the governor's say in who runs, who is let in and who has to go. It
// bounds nothing away: the step's tokens, MaxRunning and the blocks limit those
// that it names as they limit all, and no sequence is left out by not being named.
// Only a pause leaves one out.
//
// The zero value is the scheduler's own order.
type Order struct {
	// Run are planned first, one after the other; those of them that wait are
	// admitted in this order. All others follow in the scheduler's own order with
	// what is left: a sequence that the governor has not heard of yet is served.
	// Those that are named end some time, so that the others do not wait for ever.
	Run []Allotment
	// Victims give their blocks up first when these run out, the first of them
	// first. Behind them go those that are named nowhere, the youngest first, and behind
	// these the ones that Run names, the last of them first: whom it has served first keeps
	// its blocks longest. One that waits or is paused can be a victim, and so can the one
	// that needs the block. One without blocks is passed over, and so is one that is being
	// fetched: the door writes its blocks.
	Victims []*Sequence
}

// Allotment is at most so many tokens of a sequence in a step; below 1: as many
// as it needs.
type Allotment struct {
	Sequence *Sequence
	Tokens   int
}

// Obey says what plans go by from now on, until it is said anew. The lists stay the
// caller's. Sequences in them that have been removed are passed over; of one that is
// named twice, the first counts.
func (s *Scheduler) Obey(o Order) {
	for _, a := range s.order.Run {
		a.Sequence.allotted, a.Sequence.rank = 0, 0
	}
	for i, a := range slices.Backward(o.Run) {
		a.Sequence.allotted, a.Sequence.rank = a.Tokens, i+1
	}
	s.order = Order{Run: slices.Clone(o.Run), Victims: slices.Clone(o.Victims)}
}

// PauseReason is why a sequence is left out. They are bits: several may stand.
type PauseReason uint8

// The reasons.
const (
	// SlowReader: its client does not read what it says.
	SlowReader PauseReason = 1 << iota
	// Governed: a governor wants it to wait.
	Governed
	// Sought: the cell is asked for what it lost.
	Sought
)

// Pause leaves q out of plans, with its blocks, as long as any reason stands.
func (s *Scheduler) Pause(q *Sequence, reason PauseReason) { q.pauses |= reason }

// Unpause takes a reason away.
func (s *Scheduler) Unpause(q *Sequence, reason PauseReason) { q.pauses &^= reason }

// Preempt takes the blocks of q, which waits from now on and is computed anew, from
// what is found of it in the cache or fetched; its tokens are the same. It must not come
// between Plan and Commit. It reports whether q had blocks that can be taken: while
// it is being fetched, the door writes them. Unless q is paused as well, the next
// plan may let it in again. A fork is removed.
func (s *Scheduler) Preempt(q *Sequence) bool {
	if len(q.blocks) == 0 || q.state == Fetching {
		return false
	}
	s.evict(q)
	return true
}

// evict takes the blocks of q, which runs or waits.
func (s *Scheduler) evict(q *Sequence) {
	if q.fork {
		s.Remove(q)
		return
	}
	s.drop(q)
	if q.state == Running {
		s.running = without(s.running, q)
		q.state = Waiting
		s.waiting = inserted(s.waiting, q)
	}
}

// victim is who gives blocks up for another. There is always one when grow asks: the
// one that grows. Forks go before all sequences: they are never a reason to preempt.
func (s *Scheduler) victim() *Sequence {
	if last := len(s.forks) - 1; last >= 0 {
		return s.forks[last]
	}
	for _, q := range s.order.Victims {
		if len(q.blocks) > 0 && q.state != Fetching {
			return q
		}
	}
	if q := s.youngest(); q != nil {
		return q
	}
	for i, a := range slices.Backward(s.order.Run) {
		if q := a.Sequence; q.rank == i+1 && len(q.blocks) > 0 && q.state != Fetching {
			return q
		}
	}
	return nil
}

// youngest is the last to come of those that have blocks to give up and that the order does
// not name; nil: it names all.
func (s *Scheduler) youngest() *Sequence {
	var victim *Sequence
	for _, q := range slices.Backward(s.running) {
		if q.rank == 0 {
			victim = q
			break
		}
	}
	for _, q := range s.waiting {
		if len(q.blocks) > 0 && q.rank == 0 && (victim == nil || q.arrival > victim.arrival) {
			victim = q
		}
	}
	return victim
}

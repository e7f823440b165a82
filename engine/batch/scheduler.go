// Package batch decides what a step of the reference engine computes: which
// sequences get how many tokens, which blocks of KV memory they lie in, what is
// found in the cache of earlier prompts, and who has to go when blocks run out.
// It computes: no clock, no I/O, no goroutines.
//
//	Add ──► waiting ──Plan──► running ──► Work{Sequence, Start, Count} ──► the model
//	           ▲                 │                                            │
//	           └── preempted ◄───┘           Append (the next token) ◄── Commit
//
// Rules:
//   - Who came first is served first. Sequences that answer get their one token
//     before prompts get what is left of the step's budget. An Order puts others
//     before them; a pause, for as long as any reason for one stands, leaves out.
//   - A sequence takes the blocks of all its tokens when it is admitted, and one
//     more whenever they are full. If there is none, the youngest sequence that
//     has blocks, or the one that the Order says, gives all of its up and is
//     computed anew later, which gives the same tokens.
//   - A full block is named by the hash of everything up to its end. A named
//     block is never written again, so any number may share it.
//   - Who needs a block that a running sequence is to compute waits for it: what begins
//     alike is computed once.
//   - What is computed is not written again. A held block (a Hold) stays until it is
//     released, whichever sequence had it.
//   - A fork is thrown away after it is computed. It shares full blocks, and is never
//     the reason why another has to go.
package batch

import (
	"errors"
	"fmt"
	"slices"
)

var (
	// ErrFull means that as many sequences wait as may.
	ErrFull = errors.New("batch: the queue is full")
	// ErrTooLong means that a sequence would not fit if it were alone.
	ErrTooLong = errors.New("batch: more tokens than there is memory for")
)

// Options are the limits of a scheduler.
type Options struct {
	Blocks, BlockTokens int
	// MaxRunning is how many sequences are computed at a time, and also how many
	// may be fetched.
	MaxRunning int
	// MaxWaiting is how many may wait when another is added. Those that were preempted, or
	// whose fetch has ended, count, but come back whatever it says.
	MaxWaiting int
	// StepTokens is how many tokens a step computes at most; sequences that
	// answer are at most MaxRunning of them.
	StepTokens int
	// FetchTokens is how many tokens of a prompt must be missing to fetch them,
	// where there is the rest: fewer are computed sooner than fetched.
	FetchTokens int
}

// Validate says what is impossible about o.
func (o Options) Validate() error {
	for _, limit := range []struct {
		name  string
		value int
	}{
		{"Blocks", o.Blocks}, {"BlockTokens", o.BlockTokens}, {"MaxRunning", o.MaxRunning}, {"MaxWaiting", o.MaxWaiting}, {"StepTokens", o.StepTokens},
	} {
		if limit.value < 1 {
			return fmt.Errorf("batch: %s is %d, must be positive", limit.name, limit.value)
		}
	}
	if o.StepTokens < o.MaxRunning {
		return fmt.Errorf("batch: a step of %d tokens is too short for %d running sequences", o.StepTokens, o.MaxRunning)
	}
	return nil
}

// Scheduler decides. It is not safe for use by several goroutines.
type Scheduler struct {
	options  Options
	pool     *Pool
	arrivals uint64
	waiting  []*Sequence // by arrival
	running  []*Sequence // by arrival
	forks    []*Sequence // in the order in which they were made
	fetching int
	order    Order
	scratch  []*Sequence
	holds    []int32 // by block: how many holds keep it
	held     int     // blocks that some hold keeps
}

// New makes a scheduler. Its options must be valid.
func New(o Options) *Scheduler {
	return &Scheduler{options: o, pool: NewPool(o.Blocks), holds: make([]int32, o.Blocks)}
}

// Fits reports whether a sequence of so many tokens can be computed at all.
func (s *Scheduler) Fits(tokens int) bool { return s.blocksFor(tokens) <= s.options.Blocks }

// Add lets sequences wait, all of them or, with an error, none.
func (s *Scheduler) Add(sequences ...*Sequence) error {
	if len(s.waiting)+len(sequences) > s.options.MaxWaiting {
		return fmt.Errorf("%w: %d sequences wait", ErrFull, len(s.waiting))
	}
	for _, q := range sequences {
		if !s.Fits(len(q.Tokens)) {
			return fmt.Errorf("%w: %d tokens, %d blocks of %d", ErrTooLong, len(q.Tokens), s.options.Blocks, s.options.BlockTokens)
		}
	}
	for _, q := range sequences {
		s.arrivals++
		q.arrival, q.state = s.arrivals, Waiting
		s.waiting = append(s.waiting, q)
	}
	return nil
}

// Remove forgets a sequence, wherever it stands. Its blocks can be used again,
// but for those that are held.
func (s *Scheduler) Remove(q *Sequence) {
	switch q.state {
	case Absent:
		return
	case Waiting:
		s.waiting = without(s.waiting, q)
	case Running:
		s.running, s.forks = without(s.running, q), without(s.forks, q)
	case Fetching:
		s.fetching--
	}
	s.drop(q)
	q.state = Absent
}

// drop takes everything that q has.
func (s *Scheduler) drop(q *Sequence) {
	s.pool.ReleaseAll(q.blocks)
	q.blocks, q.computed, q.named, q.planned = nil, 0, 0, 0
}

// Fetched says that the cache that q waited for is in its blocks.
func (s *Scheduler) Fetched(q *Sequence) {
	// The last token is computed again, for what follows it.
	q.computed = max(q.computed, min(q.Fetch, len(q.Tokens)-1))
	q.prompted = q.prompted || q.Fetch >= q.Prompt
	s.name(q)
	s.unfetch(q)
}

// Unfetched says that the cache that q waited for does not come: it is computed. The
// blocks that were meant for it are held, or free.
func (s *Scheduler) Unfetched(q *Sequence) {
	s.drop(q)
	s.unfetch(q)
}

func (s *Scheduler) unfetch(q *Sequence) {
	s.fetching--
	q.Fetch, q.state = 0, Waiting
	s.waiting = inserted(s.waiting, q)
}

// name makes full blocks known by their keys.
func (s *Scheduler) name(q *Sequence) {
	for ; (q.named+1)*s.options.BlockTokens <= q.computed; q.named++ {
		s.pool.Name(q.blocks[q.named], q.key(q.named, s.options.BlockTokens))
	}
}

func (s *Scheduler) blocksFor(tokens int) int {
	return (tokens + s.options.BlockTokens - 1) / s.options.BlockTokens
}

// Stats is where everything stands.
type Stats struct {
	Total, Free, Cached, Held  int // blocks
	Running, Fetching, Waiting int // sequences
	Forks                      int
}

// Stats counts.
func (s *Scheduler) Stats() Stats {
	return Stats{
		Total: s.pool.Total(), Free: s.pool.Free(), Cached: s.pool.Cached(), Held: s.held,
		Running: len(s.running), Fetching: s.fetching, Waiting: len(s.waiting), Forks: len(s.forks),
	}
}

func without(list []*Sequence, q *Sequence) []*Sequence {
	if i := slices.Index(list, q); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// inserted puts q where it belongs by its arrival.
func inserted(list []*Sequence, q *Sequence) []*Sequence {
	at, _ := slices.BinarySearchFunc(list, q.arrival, func(other *Sequence, arrival uint64) int {
		if other.arrival < arrival {
			return -1
		}
		return 1
	})
	return slices.Insert(list, at, q)
}

package engine

import (
	"cmp"
	"time"

	"meridian/engine/batch"
	"meridian/serve/door"
)

// refetch is how a sequence that lost its blocks gets them back from the cell: its prompt may
// be kept there, and of its thought what was copied out.
//
//	preempted ──there is room again──► asking ──found──► waits for its place ──► fetching ──► goes on
//	                  │                  └───nothing, too late───┴──what was here is gone──┴──► computed anew
//	                  └── enough of it is here still ──► goes on
//
// It is not let in before the answer, which is waited for no longer than that of a request that
// begins. Between two tokens the cell is asked once, so that a sequence that is preempted over
// and over does not wait each time.
type refetch struct {
	timer   *time.Timer // nil: the answer has come
	present int         // tokens that are here: what is found begins behind them
	ticket  []byte
}

// refetchPatience bounds how long what was found may take to come. It is less than that of a
// request that begins: this one has waited for its blocks, and is in the middle of its answer.
const refetchPatience = 500 * time.Millisecond

// mayRefetch reports whether the cell is to be asked for a sequence that lost its blocks. What
// comes back comes to a request, so that one with several answers is computed.
func (e *Engine) mayRefetch(c *choice) bool {
	length := len(c.sequence.Tokens)
	return e.units() > 0 && len(c.request.choices) == 1 && c.finish == "" && c.refetch == nil && c.sequence.Fetch == 0 && c.sought != length && length <= door.MaxPrefixTokens
}

// beginRefetch asks for what the cell has of a sequence that lost its blocks, and that would be
// computed now.
func (e *Engine) beginRefetch(c *choice) {
	unit, present := e.units(), e.scheduler.Cached(&c.sequence)
	if unit == 0 || c.sequence.State() != batch.Waiting || !e.mayRefetch(c) || e.searches >= door.MaxFinds || (len(c.sequence.Tokens)-1)/unit*unit-present < worthFetching {
		return
	}
	r := &refetch{present: present}
	c.refetch = r
	e.scheduler.Pause(&c.sequence, batch.Sought)
	r.timer = e.look(c, present, func(found door.Found) { e.sought(c, r, found) })
}

// sought: the cell has said what it has of a sequence that lost its blocks, or is not waited
// for any more.
func (e *Engine) sought(c *choice, r *refetch, found door.Found) {
	if c.refetch != r || r.timer == nil {
		e.giveBack(found.Ticket)
		return
	}
	r.timer.Stop()
	r.timer = nil
	e.scheduler.Unpause(&c.sequence, batch.Sought)
	if found.Tokens == 0 {
		c.refetch = nil
		e.counters.Missed++
		return
	}
	r.ticket = found.Ticket
	c.sequence.Fetch, c.sequence.FetchFrom = found.Tokens, r.present
}

// refetches: a sequence of which the cell has something got its place.
func (e *Engine) refetches(c *choice, a batch.Admission) {
	if a.Fetch {
		e.accept(c, a, accepting{ticket: c.refetch.ticket, patience: min(e.options.HandoffDeadline, cmp.Or(e.options.patience, refetchPatience))})
		return
	}
	e.giveBack(c.refetch.ticket)
	c.refetch = nil
}

// endRefetch forgets that a sequence, which is over, was to get something back.
func (e *Engine) endRefetch(c *choice) {
	r := c.refetch
	if r == nil {
		return
	}
	c.refetch = nil
	if r.timer != nil {
		r.timer.Stop()
	} else if c.sequence.State() == batch.Waiting {
		e.giveBack(r.ticket)
	}
}

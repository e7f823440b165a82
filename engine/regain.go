package engine

import (
	"time"

	"meridian/engine/batch"
	"meridian/serve/door"
)

// regain is how a sequence that lost its blocks gets them back from the cell: its prompt may
// be kept there, and of its thought what was copied out.
//
//	preempted ──there is room again──► asking ──found──► waits for its place ──► fetching ──► goes on
//	                  │                  └───nothing, too late───┴──what was here is gone──┴──► computed anew
//	                  └── enough of it is here still ──► goes on
//
// It is not let in before the answer, which is waited for no longer than that of a request that
// begins. Between two tokens the cell is asked once, so that a sequence that is preempted over
// and over waits for nobody.
type regain struct {
	timer   *time.Timer // nil: the answer has come
	present int         // tokens that are here: what is found begins behind them
	ticket  []byte
}

// regainPatience bounds how long what was found may take to come. It is less than that of a
// request that begins: this one has waited for its blocks, and is in the middle of its answer.
const regainPatience = 500 * time.Millisecond

// mayRegain reports whether the cell is to be asked for a sequence that lost its blocks. What
// comes back comes to a request, so that one with several answers is computed.
func (e *Engine) mayRegain(c *choice) bool {
	length := len(c.sequence.Tokens)
	return e.units() > 0 && len(c.request.choices) == 1 && c.finish == "" && c.regain == nil && c.sequence.Fetch == 0 && c.sought != length && length <= door.MaxPrefixTokens
}

// beginRegain asks for what the cell has of a sequence that lost its blocks, and that would be
// computed now.
func (e *Engine) beginRegain(c *choice) {
	unit, present := e.units(), e.scheduler.Cached(&c.sequence)
	if unit == 0 || c.sequence.State() != batch.Waiting || !e.mayRegain(c) || e.searches >= door.MaxFinds || (len(c.sequence.Tokens)-1)/unit*unit-present < worthFetching {
		return
	}
	r := &regain{present: present}
	c.regain = r
	e.scheduler.Pause(&c.sequence, batch.Sought)
	r.timer = e.look(c, present, func(found door.Found) { e.sought(c, r, found) })
}

// sought: the cell has said what it has of a sequence that lost its blocks, or is not waited
// for any more.
func (e *Engine) sought(c *choice, r *regain, found door.Found) {
	if c.regain != r || r.timer == nil {
		e.giveBack(found.Ticket)
		return
	}
	r.timer.Stop()
	r.timer = nil
	e.scheduler.Unpause(&c.sequence, batch.Sought)
	if found.Tokens == 0 {
		c.regain = nil
		e.counters.Missed++
		return
	}
	r.ticket = found.Ticket
	c.sequence.Fetch, c.sequence.FetchFrom = found.Tokens, r.present
}

// regains: a sequence of which the cell has something got its place.
func (e *Engine) regains(c *choice, a batch.Admission) {
	if a.Fetch {
		e.accept(c, a, accepting{ticket: c.regain.ticket, patience: min(e.options.HandoffDeadline, regainPatience)})
		return
	}
	e.giveBack(c.regain.ticket)
	c.regain = nil
}

// endRegain forgets that a sequence, which is over, was to get something back.
func (e *Engine) endRegain(c *choice) {
	r := c.regain
	if r == nil {
		return
	}
	c.regain = nil
	if r.timer != nil {
		r.timer.Stop()
	} else if c.sequence.State() == batch.Waiting {
		e.giveBack(r.ticket)
	}
}

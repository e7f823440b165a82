package engine

import (
	"time"

	"meridian/engine/batch"
	"meridian/serve/door"
	"meridian/serve/door/doorpb"
)

// swap is a sequence whose blocks leave for the cell's cache at the governor's wish, or
// are there.
//
//	Preempt ──► stopped ──CopyOut──► copies are made ──Evict──► away ──Recall──► asking ──► fetching ──► runs
//	              │                                               └────────── nothing is found ───────────┘ computed anew
//	              └── a copy fails: it keeps its blocks
//
// The cache keeps full units of its own. What is behind the last of them is computed again,
// and so is all that is not found: tokens are the same in any case.
type swap struct {
	// away are the places in the context of those blocks that were evicted; none: it has
	// all its blocks.
	away []int
	// recalls: it is on its way back, since then.
	recalls bool
	began   time.Time
	search  *time.Timer // nil: the engine does not look for it
	ticket  []byte      // for what was found
}

// copying is a copy that the governor asked for.
type copying struct {
	number uint64
	blocks []uint32
	began  time.Time
	failed bool
}

// storeDown tells whether nothing can be copied out now.
func (e *Engine) storeDown() bool { return e.units() == 0 }

// units is how many tokens the cell's cache keeps together; 0: there is none.
func (e *Engine) units() int {
	if e.door == nil {
		return 0
	}
	if terms, has := e.door.Cache(); has {
		return terms.BlockTokens
	}
	return 0
}

// swapOut stops a sequence, whose blocks wait to be copied out. Only a request with a
// single answer can: what comes back comes to a request.
func (e *Engine) swapOut(c *choice) bool {
	if len(c.request.choices) != 1 || e.storeDown() || c.sequence.State() != batch.Running || c.swap != nil || c.request.accept != nil || c.request.early != nil {
		return false
	}
	e.dropFork(c)
	c.swap = &swap{}
	e.scheduler.Pause(&c.sequence, batch.Governed)
	e.columns.Stopped = append(e.columns.Stopped, &doorpb.Stopped{Sequence: c.governed})
	return true
}

// copyOut has blocks of a sequence kept by the cell. Where that is not possible the
// governor hears of it with the next Step.
func (e *Engine) copyOut(m *doorpb.CopyOut) {
	c := e.byNumber[m.GetSequence()]
	blocks, named := distinct(m.GetBlocks())
	w := &copying{number: m.GetSequence(), blocks: blocks, began: time.Now(), failed: true}
	if c == nil || len(blocks) == 0 {
		e.copied(w)
		return
	}
	last := -1
	for i, b := range c.sequence.Blocks() {
		if named[b] {
			last = i
		}
	}
	unit := e.units()
	if last < 0 || unit == 0 || e.keeps >= maxKeeps {
		e.copied(w)
		return
	}
	tokens := min(c.sequence.Computed(), (last+1)*e.options.BlockTokens, door.MaxPrefixTokens) / unit * unit
	w.failed = false
	if tokens == 0 { // all of it is computed again
		e.copied(w)
		return
	}
	e.keepAs(c, tokens, w)
}

// distinct is the blocks that a governor names, each once, and which they are.
func distinct(blocks []uint32) (once []uint32, named map[uint32]bool) {
	named = make(map[uint32]bool, len(blocks))
	for _, b := range blocks {
		if !named[b] {
			named[b] = true
			once = append(once, b)
		}
	}
	return once, named
}

// copied tells of the end of a copy.
func (e *Engine) copied(w *copying) {
	if !w.failed {
		e.counters.CopiedOut += uint64(len(w.blocks))
	} else if c := e.byNumber[w.number]; c != nil && c.swap != nil && len(c.swap.away) == 0 {
		c.swap = nil // it keeps its blocks
	}
	if e.terms != nil {
		e.columns.Copied = append(e.columns.Copied, &doorpb.Copied{Sequence: w.number, Blocks: w.blocks, TookNs: uint64(time.Since(w.began)), Whole: !w.failed})
	}
}

// evict lets go of the blocks of those that were stopped to be copied out. Other blocks go
// when another sequence needs them: of a sequence that has them all the governor will recall some
// that never left.
func (e *Engine) evict(blocks []uint32) {
	if len(blocks) == 0 {
		return
	}
	_, gone := distinct(blocks)
	for _, c := range e.known {
		var away []int
		for i, b := range c.sequence.Blocks() {
			switch {
			case !gone[b]:
			case c.swap != nil:
				away = append(away, i)
			case c.told.evicted == nil:
				c.told.evicted = map[uint32]bool{b: true}
			default:
				c.told.evicted[b] = true
			}
		}
		if len(away) > 0 && e.scheduler.Preempt(&c.sequence) {
			c.swap.away, c.lost = away, len(c.sequence.Tokens)
		}
	}
}

// recall brings a sequence back. One that never left says so at once.
func (e *Engine) recall(c *choice) {
	s := c.swap
	if s == nil || len(s.away) == 0 {
		// It was evicted in the governor's eyes alone.
		var blocks []uint32
		for _, b := range c.sequence.Blocks() {
			if c.told.evicted[b] {
				blocks = append(blocks, b)
			}
		}
		e.recalledBy(c, blocks, time.Now(), len(blocks) > 0)
		c.told.evicted = nil
		return
	}
	if s.recalls {
		return
	}
	s.recalls, s.began = true, time.Now()
	unit := e.units()
	if unit == 0 || e.searches >= door.MaxFinds || len(c.sequence.Tokens) > door.MaxPrefixTokens {
		e.located(c, s, door.Found{}, 0)
		return
	}
	present := e.scheduler.Cached(&c.sequence)
	if (len(c.sequence.Tokens)-1)/unit*unit-present < worthFetching {
		e.located(c, s, door.Found{}, present)
		return
	}
	s.search = e.look(c, present, func(found door.Found) { e.located(c, s, found, present) })
}

// located: the cell has said what it has of a sequence that comes back, or is not waited
// for any more. The sequence takes its place again.
func (e *Engine) located(c *choice, s *swap, found door.Found, present int) {
	if c.swap != s || !s.recalls || c.request.over || c.sequence.State() != batch.Waiting || s.ticket != nil || c.sequence.Fetch > 0 {
		e.giveBack(found.Ticket)
		return
	}
	if s.search != nil {
		s.search.Stop()
		s.search = nil
	}
	if found.Tokens > 0 {
		s.ticket = found.Ticket
		c.sequence.Fetch, c.sequence.FetchFrom = found.Tokens, present
	}
	e.scheduler.Unpause(&c.sequence, batch.Governed)
}

// returns: a sequence that was away has its place, and what was found is fetched.
func (e *Engine) returns(c *choice, a batch.Admission) {
	s := c.swap
	switch {
	case a.Fetch:
		e.accept(c, a, accepting{ticket: s.ticket, patience: min(e.options.HandoffDeadline, foundPatience)})
		return
	case s.ticket != nil:
		e.giveBack(s.ticket)
	}
	e.backAgain(c)
}

// backAgain ends a swap: the sequence has its blocks, or none where what was found did not
// come. It is whole if not more is to be computed than the cache does not keep, or than is
// not worth to be fetched.
func (e *Engine) backAgain(c *choice) {
	s, table := c.swap, c.sequence.Blocks()
	c.swap = nil
	whole := len(c.sequence.Tokens)-c.sequence.Computed() <= e.units()+e.options.BlockTokens+worthFetching
	var blocks []uint32
	for _, i := range s.away {
		if i >= len(table) {
			break
		}
		blocks = append(blocks, table[i])
		if e.terms != nil && i >= c.found { // else what is in it was there, and others may have it
			e.columns.Evicted = append(e.columns.Evicted, table[i])
		}
	}
	if whole = whole && len(blocks) == len(s.away); whole {
		e.counters.Recalled++
	}
	e.recalledBy(c, blocks, s.began, whole)
}

// recalledBy tells what came of a recall.
func (e *Engine) recalledBy(c *choice, blocks []uint32, began time.Time, whole bool) {
	if e.terms == nil {
		return
	}
	e.columns.Recalled = append(e.columns.Recalled, &doorpb.Copied{Sequence: c.governed, Blocks: blocks, TookNs: uint64(time.Since(began)), Whole: whole})
	if !whole {
		c.told.kv, c.told.blocks, c.told.evicted = 0, 0, nil
	}
}

// endSwap forgets a swap of a sequence that is over, or computed anew.
func (e *Engine) endSwap(c *choice) {
	s := c.swap
	if s == nil {
		return
	}
	c.swap = nil
	if s.search != nil {
		s.search.Stop()
	}
	if s.ticket != nil && c.sequence.State() == batch.Waiting {
		e.giveBack(s.ticket)
		c.sequence.Fetch = 0
	}
}

// unswap has a sequence go on without a governor: with its blocks, or with what the cell
// has of it.
func (e *Engine) unswap(c *choice) {
	switch s := c.swap; {
	case s == nil:
	case len(s.away) == 0:
		c.swap = nil
	default:
		// It waits until the cell has answered, or is not waited for. One that was
		// answered before does not wait: nothing would let it go on.
		if !s.recalls || s.search != nil {
			e.scheduler.Pause(&c.sequence, batch.Governed)
		}
		e.recall(c)
	}
}

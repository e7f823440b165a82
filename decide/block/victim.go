package block

import (
	"fmt"

	"meridian/kv"
)

// Victims appends up to n blocks that may go, in the order in which they should.
// It changes nothing: Evict does, block by block, and keeps the order of the rest.
func (t *Table) Victims(dst []ID, n int) []ID {
	over := t.overThink()
	var at [queues]uint32
	for q := range queues {
		at[q] = t.slots[t.head(q)].next
	}
	for ; n > 0; n-- {
		q, found := t.nextQueue(&at, over)
		if !found {
			break
		}
		b := at[q]
		t.warm(&t.slots[b].own) // often its request's next one is the queue's, too
		if t.slots[b].tier <= kv.ThinkActive {
			over--
		}
		dst = append(dst, ID(b))
		at[q] = t.slots[b].next
	}
	return dst
}

// overThink is how many think blocks are held beyond their fraction.
func (t *Table) overThink() int {
	return int(t.byTier[kv.ThinkComplete]+t.byTier[kv.ThinkActive]) - t.thinkBlocks
}

// Two orders of queues: within the think blocks' fraction, and beyond it.
var (
	within = [...]queue{spent, cached, thinkComplete, thinkActive, outputCritical}
	beyond = [...]queue{spent, thinkComplete, thinkActive, cached, outputCritical}
)

// nextQueue is which queue the next victim comes from, where at says how far
// each was read.
func (t *Table) nextQueue(at *[queues]uint32, over int) (queue, bool) {
	order := &within
	if over > 0 {
		order = &beyond
	}
	for _, q := range order {
		if at[q] != t.head(q) {
			return q, true
		}
	}
	return limbo, false
}

// Due is how many blocks should leave without waiting for pressure. They are the
// first of the victims.
func (t *Table) Due() int { return int(t.queued[spent]) }

// Evict makes a block vacant. One that may not go is refused: a running request
// holds it, a paused one needs it and there is no copy, or a transfer touches it.
// Paused holders keep their hold where a copy remains, Elsewhere.
func (t *Table) Evict(b ID) error {
	s, err := t.slot(b)
	if err != nil {
		return err
	}
	if s.queue == vacant || s.queue == limbo {
		return fmt.Errorf("%w: block %d can not leave: %s", ErrRefused, b, s.stays())
	}
	if s.tier == untiered {
		t.counts.EvictedCached++
	} else {
		t.counts.Evicted[s.tier]++
	}
	// Pinned, it does not move from queue to queue with every hold that ends.
	s.marks |= arriving
	t.place(uint32(b))
	t.counts.Recomputed += uint64(t.expel(uint32(b), s.has(copied)))
	s.marks = 0
	t.place(uint32(b))
	return nil
}

func (s *slot) stays() string {
	switch {
	case s.queue == vacant:
		return "it is vacant"
	case s.has(leaving):
		return "it is being copied out"
	case s.has(arriving):
		return "it is being brought in"
	case s.running > 0:
		return "a running request holds it; pause that first"
	}
	return "a paused request needs it and there is no copy; copy it out, or forgo it"
}

package block

import (
	"fmt"

	"meridian/kv"
)

// Reason is why a block could go.
type Reason uint8

const (
	// Unused: no request held it.
	Unused Reason = iota
	// HolderFinished: who held it had finished.
	HolderFinished
	// CopyElsewhere: a paused request holds it, and a copy remains.
	CopyElsewhere
	// Recompute: a paused request holds it, no copy remains, and policy chose to
	// compute it again.
	Recompute
)

var reasonNames = [...]string{
	Unused: "no request held it", HolderFinished: "its requests had finished", CopyElsewhere: "a copy is elsewhere",
	Recompute: "policy chose to recompute it",
}

func (r Reason) String() string {
	if int(r) >= len(reasonNames) {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Eviction is what leaving cost, and why it was this block.
type Eviction struct {
	Block  ID
	Held   bool
	Tier   kv.Tier // of its most protected hold, if it was held
	Reason Reason
	Copied bool
	// Lost is how many requests must compute it again.
	Lost int
	// Before is how many other blocks the order would have taken first.
	Before int
	// Used of Capacity is how full the memory was, in blocks.
	Used, Capacity int
}

func (e Eviction) String() string {
	who := "cached"
	if e.Held {
		who = e.Tier.String()
	}
	text := fmt.Sprintf("block %d (%s) left: %v; %d of %d blocks were used", e.Block, who, e.Reason, e.Used, e.Capacity)
	if e.Lost > 0 {
		text += fmt.Sprintf("; %d requests compute it again", e.Lost)
	}
	if e.Before > 0 {
		text += fmt.Sprintf("; %d others should have gone first", e.Before)
	}
	return text + "."
}

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
func (t *Table) Evict(b ID) (Eviction, error) {
	s, err := t.slot(b)
	if err != nil {
		return Eviction{}, err
	}
	if s.queue == vacant || s.queue == limbo {
		return Eviction{}, fmt.Errorf("%w: block %d can not leave: %s", ErrRefused, b, s.stays())
	}
	e := Eviction{
		Block: b, Held: s.tier != untiered, Copied: s.has(copied), Reason: s.reason(), Before: t.before(s.queue),
		Used: t.Used(), Capacity: t.capacity,
	}
	if e.Held {
		e.Tier = s.tier
		t.counts.Evicted[e.Tier]++
	} else {
		t.counts.EvictedCached++
	}
	// Pinned, it does not move from queue to queue with every hold that ends.
	s.marks |= arriving
	t.place(uint32(b))
	e.Lost = t.expel(uint32(b), e.Copied)
	t.counts.Recomputed += uint64(e.Lost)
	s.marks = 0
	t.place(uint32(b))
	return e, nil
}

// before is how many blocks stand in the queues before q.
func (t *Table) before(q queue) int {
	order := &within
	if t.overThink() > 0 {
		order = &beyond
	}
	n := 0
	for _, earlier := range order {
		if earlier == q {
			break
		}
		n += int(t.queued[earlier])
	}
	return n
}

func (s *slot) reason() Reason {
	switch {
	case s.tier == untiered:
		return Unused
	case s.needed == 0 && s.forgone == 0:
		return HolderFinished
	case s.has(copied):
		return CopyElsewhere
	}
	return Recompute
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

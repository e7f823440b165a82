package block

import (
	"errors"
	"fmt"
	"math"

	"meridian/kv"
)

// ID is a slot of an engine's KV memory.
type ID uint32

// none is no block, no hold.
const none = math.MaxUint32

var (
	// ErrUnknown means a block or a request that the table does not have.
	ErrUnknown = errors.New("block: unknown")
	// ErrRefused means that what was asked for would break a promise of the table.
	ErrRefused = errors.New("block: refused")
)

// Options is what a table is made for.
type Options struct {
	// Blocks is how many slots the engine has.
	Blocks int
	// Capacity is how many of them may be used; 0 means all. Memory computes both.
	Capacity int
	// BlockBytes is the size of one, for the counters in bytes.
	BlockBytes int64
	// ThinkFraction is kv_memory.think_phase_memory_fraction; 0 means 0.4.
	ThinkFraction float64
	// Aggressive is kv_memory.aggressive_think_eviction.
	Aggressive bool
}

// DefaultThinkFraction is what kv_memory.think_phase_memory_fraction is by default.
const DefaultThinkFraction = 0.4

// Table is the blocks of one engine. It is not safe for concurrent use.
type Table struct {
	slots []slot // of the blocks, then one sentinel for each queue
	// extra are the holds beyond the one that a slot has room for. A hold is
	// known by its slot's number, or by those that follow.
	extra    []hold
	requests []request
	// freeExtra and freeRequest begin the lists of entries that are not used.
	freeExtra, freeRequest uint32

	blocks, capacity int
	thinkBlocks      int // how many may think before they are the first to go
	aggressive       bool
	blockBytes       int64

	early  uint32 // what was read ahead, so that the compiler lets it be read
	queued [queues]int32
	byTier [untiered + 1]int32
	counts Counters
}

// slot is what the table knows of a block. As a sentinel it is the ring of a queue.
// It has the size of a cache line, with the only hold that most blocks have: at
// a million blocks, time is what comes from memory.
type slot struct {
	next, prev uint32
	first      uint32    // of its holds
	tiers      [3]uint16 // its holds by tier
	// Of its holds: of requests that run, that are paused and need it, and for
	// which policy chose to recompute. The rest have finished.
	running, needed, forgone uint16
	queue                    queue
	tier                     kv.Tier // of its most protected hold; untiered if no request holds it
	was                      kv.Tier // of its last hold
	marks                    mark
	own                      hold // most often on this very block; free if its request is none
	_                        [4]byte
}

const (
	// maxHolders is how many requests may hold a block.
	maxHolders = math.MaxUint16
	// maxExtra bounds the holds beyond the one that each slot has room for, 32 bytes each:
	// 256 requests may share the same 4,096 blocks.
	maxExtra = 1 << 20
)

type mark uint8

const (
	sealed   mark = 1 << iota // full: written no more, and can be found again
	copied                    // an equal copy is elsewhere
	leaving                   // a transfer reads it
	arriving                  // a transfer writes it
	stale                     // leaving, and written since
)

// untiered is the tier of a block that no request holds.
const untiered = kv.OutputCritical + 1

func (s *slot) has(m mark) bool { return s.marks&m != 0 }
func (s *slot) holders() int    { return int(s.tiers[0]) + int(s.tiers[1]) + int(s.tiers[2]) }

// abandoned means that only a transfer keeps the block from being vacant.
func (s *slot) abandoned() bool {
	return s.tier == untiered && s.has(leaving|arriving) && !s.has(sealed)
}

// New makes a table of vacant blocks.
func New(o Options) (*Table, error) {
	if o.Capacity == 0 {
		o.Capacity = o.Blocks
	}
	if o.ThinkFraction == 0 {
		o.ThinkFraction = DefaultThinkFraction
	}
	switch {
	case o.Blocks < 1 || o.Blocks >= none-int(queues):
		return nil, fmt.Errorf("block: a table of %d blocks: it takes 1 to %d", o.Blocks, none-int(queues)-1)
	case o.Capacity < 0 || o.Capacity > o.Blocks:
		return nil, fmt.Errorf("block: capacity of %d blocks, of which the engine has %d", o.Capacity, o.Blocks)
	case !(o.ThinkFraction > 0 && o.ThinkFraction < 1):
		return nil, fmt.Errorf("block: kv_memory.think_phase_memory_fraction %g is not between 0 and 1", o.ThinkFraction)
	}
	t := &Table{
		slots: make([]slot, o.Blocks+int(queues)), freeExtra: none, freeRequest: none,
		blocks: o.Blocks, capacity: o.Capacity, thinkBlocks: int(o.ThinkFraction * float64(o.Capacity)),
		aggressive: o.Aggressive, blockBytes: o.BlockBytes,
	}
	for q := range queues {
		head := t.head(q)
		t.slots[head].next, t.slots[head].prev = head, head
	}
	for b := o.Blocks - 1; b >= 0; b-- {
		s := &t.slots[b]
		s.own.request, s.first, s.tier, s.was, s.queue = none, none, untiered, untiered, limbo
		t.byTier[untiered]++
		t.place(uint32(b))
	}
	return t, nil
}

// Next is the vacant block to hold next, if one may be used.
func (t *Table) Next() (ID, bool) {
	first := t.slots[t.head(vacant)].next
	return ID(first), t.queued[vacant] > 0 && t.Used() < t.capacity
}

// Used is how many blocks are not vacant.
func (t *Table) Used() int { return t.blocks - int(t.queued[vacant]) }

// Hold gives a request a block: a vacant one, which it will write, or one whose
// contents it shares. A new hold is ThinkActive or OutputCritical. An engine that
// uses a cached block for something else says Evict first.
func (t *Table) Hold(r Request, b ID, tier kv.Tier) error {
	q, err := t.request(r)
	if err != nil {
		return err
	}
	s, err := t.slot(b)
	if err != nil {
		return err
	}
	switch {
	case tier != kv.ThinkActive && tier != kv.OutputCritical:
		return fmt.Errorf("%w: a new hold of tier %v: holds begin as think_active or output_critical", ErrRefused, tier)
	case q.state == Finished:
		return fmt.Errorf("%w: request %v has finished and holds nothing new", ErrRefused, r)
	case q.state == Running && s.has(arriving):
		return fmt.Errorf("%w: block %d is still being brought in: request %v can not run with it", ErrRefused, b, r)
	case s.holders() == maxHolders:
		return fmt.Errorf("%w: %d requests hold block %d, and no more can", ErrRefused, maxHolders, b)
	case s.own.request != none && t.freeExtra == none && len(t.extra) >= maxExtra:
		return fmt.Errorf("%w: requests share blocks %d times, and no block can be shared once more", ErrRefused, maxExtra)
	case s.abandoned():
		return fmt.Errorf("%w: block %d is %v and has no contents to share: a transfer touches it still", ErrRefused, b, s.location())
	}
	t.attach(t.newHold(r.index(), uint32(b), tier), uint32(b))
	return nil
}

// Release ends one hold of a request on a block. It looks through the holds on
// the block; End releases all of a request's without looking.
func (t *Table) Release(r Request, b ID) error {
	if _, err := t.request(r); err != nil {
		return err
	}
	s, err := t.slot(b)
	if err != nil {
		return err
	}
	for h := s.first; h != none; h = t.hold(h).next {
		if t.hold(h).request == r.index() {
			t.detach(h)
			t.endHold(h)
			return nil
		}
	}
	return fmt.Errorf("%w: request %v does not hold block %d", ErrUnknown, r, b)
}

// Touch says that a block was used. A block of a running request is used in
// every step and need not be touched: it joins the end of its queue when it may go.
func (t *Table) Touch(b ID) error {
	s, err := t.slot(b)
	if err != nil {
		return err
	}
	if s.queue != vacant && s.queue != limbo {
		q := s.queue
		t.unlink(uint32(b))
		t.link(uint32(b), q)
	}
	return nil
}

// Seal says that a block is full: it is written no more, and can be found again.
// Once no request holds it, it is cached instead of vacant.
func (t *Table) Seal(b ID) error {
	s, err := t.slot(b)
	if err != nil {
		return err
	}
	if s.queue == vacant {
		return fmt.Errorf("%w: block %d is vacant and holds nothing to be found", ErrRefused, b)
	}
	s.marks |= sealed
	return nil
}

// Demote says that a request's thought has ended: its ThinkActive holds become
// ThinkComplete, the only change of tier there is. It appends those of their
// blocks that are full and have no copy elsewhere, in the order of the context:
// copied out now, they make a later pause cheap.
func (t *Table) Demote(r Request, dst []ID) ([]ID, error) {
	q, err := t.request(r)
	if err != nil {
		return dst, err
	}
	for h := q.oldest; h != none; h = t.hold(h).newer {
		n := t.hold(h)
		if n.tier != kv.ThinkActive {
			continue
		}
		n.tier = kv.ThinkComplete
		if n.block == none {
			continue
		}
		s := &t.slots[n.block]
		s.tiers[kv.ThinkActive]--
		s.tiers[kv.ThinkComplete]++
		t.place(n.block)
		if s.has(sealed) && !s.has(copied|leaving|arriving) {
			dst = append(dst, ID(n.block))
		}
	}
	return dst, nil
}

func (t *Table) slot(b ID) (*slot, error) {
	if int(b) >= t.blocks {
		return nil, fmt.Errorf("%w: block %d of a table of %d", ErrUnknown, b, t.blocks)
	}
	return &t.slots[b], nil
}

package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"meridian/keep/store/admission"
	"meridian/keep/store/arena"
	"meridian/keep/store/protocol"
	"meridian/keep/store/tier"
	"meridian/kv"
)

// cold is the tiers below the owner's memory. They keep objects of runs alone: the key of
// such an object says what it is, so that it does not matter who put it, and when.
//
//	Touch, Hold: used twice ──► behind: held, summed, tier.Put          (dropped where too much waits)
//	Where: no memory has it ──► the tiers here, and those of other owners
//	Hold: it is not here ─────► promoted: tier.Get into room that is reserved, and committed
type cold struct {
	store  *Store
	behind []*writeBehind // the first is asked first
	coming chan struct{}  // a place for each run on its way to memory

	mu     sync.Mutex // protects the rest
	sketch *admission.Sketch
	// promoting are the objects that come to memory, by the hashes of their names.
	promoting map[uint64]*objectPromotion
	stats     ColdStats
}

// objectPromotion is an object on its way to memory.
type objectPromotion struct {
	over chan struct{} // closed when it is
	tier string        // that had it, once it is over
}

// writeBehind writes to one tier what was admitted.
type writeBehind struct {
	tier.Tier
	runs chan [][]byte
}

// ColdStats are what came and went between memory and the tiers.
type ColdStats struct {
	// Dropped objects were admitted, and not written: too much waited.
	Dropped          uint64  `metric:"meridian_store_written_behind_dropped_total"`
	Promoted         uint64  `metric:"meridian_store_promoted_total,done"`
	PromotedBytes    uint64  `metric:"meridian_store_promoted_bytes_total"`
	PromotionsFailed uint64  `metric:"meridian_store_promoted_total,failed"`
	PromotionSeconds float64 `metric:"meridian_store_promotion_seconds_total"`
}

const (
	// admittedUses is how often an object is used before a tier is given it: what is used
	// once is mostly not used again.
	admittedUses = 2
	// sketched is how many objects uses are told apart of, in 4 bytes each.
	sketched = 1 << 18
	// maxBehind is how many runs wait for a tier.
	maxBehind = 256
	// busyPatience is how long one waits for a tier that is busy.
	busyPatience = time.Second
)

// openCold begins to write behind; nil, if there is no tier.
func openCold(s *Store, tiers []tier.Tier) *cold {
	if len(tiers) == 0 {
		return nil
	}
	c := &cold{store: s, sketch: admission.NewSketch(sketched), promoting: make(map[uint64]*objectPromotion), coming: make(chan struct{}, maxPromotions)}
	for _, t := range tiers {
		b := &writeBehind{t, make(chan [][]byte, maxBehind)}
		c.behind = append(c.behind, b)
		s.wait.Go(func() { c.write(b) })
	}
	return c
}

// used notes a use of a run, and has written behind what was used before.
func (c *cold) used(names [][]byte) {
	if c == nil {
		return
	}
	var admitted [][]byte
	c.mu.Lock()
	for _, name := range names {
		if protocol.IsCopy(name) { // what is colder than memory needs none
			continue
		}
		if c.sketch.Use(arena.HashKey(name)) >= admittedUses {
			admitted = append(admitted, name)
		}
	}
	c.mu.Unlock()
	for _, b := range c.behind {
		var missing [][]byte
		for i, is := range b.Has(admitted) {
			if !is {
				missing = append(missing, admitted[i])
			}
		}
		if len(missing) == 0 {
			continue
		}
		select {
		case b.runs <- missing:
		default:
			c.count(func(s *ColdStats) { s.Dropped += uint64(len(missing)) })
		}
	}
}

func (c *cold) count(change func(*ColdStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// write gives a tier what was admitted, run by run, until the store is closed.
func (c *cold) write(b *writeBehind) {
	for {
		select {
		case <-c.store.ctx.Done():
			return
		case names := <-b.runs:
			wrote, has := false, b.Has(names)
			for i := range slices.Backward(names) { // a tier lets go first of what came first, and that must be a run's end
				if !has[i] {
					wrote = c.writeOne(b, names[i]) || wrote
				}
			}
			if wrote { // the last of a run still leaves first
				c.store.touch(names)
			}
		}
	}
}

// writeOne gives a tier an object, if it is still here and whole.
func (c *cold) writeOne(b *writeBehind, name []byte) (wrote bool) {
	h, err := c.store.holdNames([][]byte{name}, false)
	defer h.Release()
	if err != nil {
		return false
	}
	at := h.held[0].Location
	if b.Takes(at.Bytes) != nil { // before its bytes are read for their sum, at each use
		c.count(func(s *ColdStats) { s.Dropped++ })
		return false
	}
	if c.store.owned.heap.Check(at.Offset, at.Bytes, at.Checksum) != nil {
		h.drop(0, true)
		return false
	}
	o := tier.Object{Key: name, Payload: c.store.owned.memory.Bytes(at.Offset, at.Bytes)}
	if err = b.Put(o); errors.Is(err, tier.ErrBusy) {
		ctx, cancel := context.WithTimeout(c.store.ctx, busyPatience)
		defer cancel()
		_ = b.Flush(ctx)
		err = b.Put(o)
	}
	if err != nil {
		c.count(func(s *ColdStats) { s.Dropped++ })
	}
	return true
}

// has reports which of the names a tier here has.
func (c *cold) has(names [][]byte) []bool {
	has := make([]bool, len(names))
	if c == nil {
		return has
	}
	for _, b := range c.behind {
		for i, is := range b.Has(names) {
			has[i] = has[i] || is
		}
	}
	return has
}

// drop lets tiers forget an object.
func (c *cold) drop(name []byte) {
	if c != nil {
		for _, b := range c.behind {
			b.Drop(name)
		}
	}
}

// whereCold fills in which owners have objects in tiers that no owner has in memory: this
// one, or others that have tiers, each asked once. What one does not say in time it has not.
func (s *Store) whereCold(ctx context.Context, names [][]byte, owners []string) {
	unknown := func() (at []int, some [][]byte) {
		for i, owner := range owners {
			if owner == "" && len(some) < protocol.MaxKeys && !protocol.IsCopy(names[i]) {
				at, some = append(at, i), append(some, names[i])
			}
		}
		return at, some
	}
	at, some := unknown()
	for i, is := range s.cold.has(some) {
		if is {
			owners[at[i]] = s.self.Name
		}
	}
	var others []kv.Member
	for _, o := range s.Owners() {
		if o.Tiers && o.Name != s.self.Name && len(others) < maxColdAsked {
			others = append(others, o.peer())
		}
	}
	if at, some = unknown(); len(some) == 0 || len(others) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, coldPatience)
	defer cancel()
	present := make([][]bool, len(others))
	each(len(others), func(i int) {
		answer, err := s.askPeer(ctx, others[i], &protocol.Cold{Names: some})
		if said, is := answer.(*protocol.Present); err == nil && is && len(said.Is) == len(some) {
			present[i] = said.Is
		}
	})
	for i, n := range at {
		for k, is := range present {
			if is != nil && is[i] && owners[n] == "" {
				owners[n] = others[k].Name
			}
		}
	}
}

const (
	// maxColdAsked bounds how many owners are asked what their tiers have, coldPatience
	// how long each is waited for: a miss must not cost more than it saves.
	maxColdAsked = 16
	coldPatience = 50 * time.Millisecond
)

// describe is how the tiers stand, for an operator.
func (c *cold) describe() *protocol.Tiers {
	m := &protocol.Tiers{}
	if c == nil {
		return m
	}
	for _, b := range c.behind {
		s := b.Stats()
		m.Tiers = append(m.Tiers, protocol.Tier{
			Name: b.Name(), Objects: s.Objects, Bytes: s.Bytes, Limit: s.Limit, Waiting: s.Waiting, Puts: s.Puts, PutsDropped: s.PutsDropped, PutsFailed: s.PutsFailed,
			Hits: s.Hits, Misses: s.Misses, Slow: s.Slow, Failed: s.Failed, Broken: s.Broken, Reclaimed: s.Reclaimed, Requests: s.Requests, Exceeds: s.OverBudget, Down: s.Down,
		})
	}
	return m
}

// TierStats is how a tier of this process stands.
type TierStats struct {
	Name string
	tier.Stats
}

// Cold is how the tiers below this process's memory stand; none, if it has none.
func (s *Store) Cold() (stats ColdStats, tiers []TierStats) {
	if s.cold == nil {
		return stats, nil
	}
	for _, b := range s.cold.behind {
		tiers = append(tiers, TierStats{b.Name(), b.Stats()})
	}
	s.cold.mu.Lock()
	defer s.cold.mu.Unlock()
	return s.cold.stats, tiers
}

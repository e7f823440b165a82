package block

// Counters is a snapshot of what the table holds and of what it has done.
type Counters struct {
	// Now, in blocks.
	Blocks, Capacity, Used, Cached int
	// Held is by the tier of a block's most protected hold.
	Held [3]int
	// Holds is how many requests' holds are on blocks.
	Holds int
	// MayGo is how many are victims at the last resort.
	MayGo int
	// UsedBytes is Used in bytes.
	UsedBytes int64

	// Since the table was made.
	Evicted       [3]uint64 // by tier
	EvictedCached uint64
	CopiedOut     uint64
	BroughtIn     uint64
	// Recomputed is how many holds lost a block that no copy remains of.
	Recomputed uint64
}

// Counters is what there is and what happened until now.
func (t *Table) Counters() Counters {
	c := t.counts
	c.Blocks, c.Capacity, c.Used = t.blocks, t.capacity, t.Used()
	c.UsedBytes = int64(c.Used) * t.blockBytes
	for tier := range c.Held {
		c.Held[tier] = int(t.byTier[tier])
	}
	for q := spent; q < queues; q++ {
		c.MayGo += int(t.queued[q])
	}
	held := 0
	for _, n := range c.Held {
		held += n
	}
	c.Cached = c.Used - held
	return c
}

package replay

// cache is the prefix cache of an engine, or the cell's store: chunks of prompts
// by their hashes. A chunk that somebody holds stays; the others leave, those
// that were used longest ago first.
type cache struct {
	byHash  map[uint64]int32
	chunks  []chunk // chunks[0] is the ring's anchor: older is the newest, newer the oldest
	unused  []int32
	idle    int32 // chunks that nobody holds
	version uint64
}

type chunk struct {
	hash         uint64
	holders      int32
	older, newer int32
}

func newCache() *cache { return &cache{byHash: make(map[uint64]int32), chunks: make([]chunk, 1)} }

// held is how many leading chunks are there, and how many of these somebody
// holds.
func (c *cache) held(prefix []uint64, limit int32) (there, inUse int32) {
	for ; there < limit; there++ {
		at, has := c.byHash[prefix[there]]
		if !has {
			break
		}
		if c.chunks[at].holders > 0 {
			inUse++
		}
	}
	return there, inUse
}

// take holds a chunk that is there, and says whether nobody did before.
func (c *cache) take(hash uint64) (first bool) {
	at := c.byHash[hash]
	k := &c.chunks[at]
	k.holders++
	if k.holders > 1 {
		return false
	}
	c.unlink(at)
	c.idle--
	c.version++
	return true
}

// put makes a chunk that its maker holds; it says false if it is there already.
func (c *cache) put(hash uint64) bool {
	if _, has := c.byHash[hash]; has {
		return false
	}
	var at int32
	if n := len(c.unused); n > 0 {
		at, c.unused = c.unused[n-1], c.unused[:n-1]
	} else {
		at = int32(len(c.chunks))
		c.chunks = append(c.chunks, chunk{})
	}
	c.chunks[at] = chunk{hash: hash, holders: 1}
	c.byHash[hash] = at
	c.version++
	return true
}

// give lets go of a chunk, and says whether nobody holds it now.
func (c *cache) give(hash uint64) (last bool) {
	at := c.byHash[hash]
	k := &c.chunks[at]
	k.holders--
	if k.holders > 0 {
		return false
	}
	k.newer, k.older = 0, c.chunks[0].older
	c.chunks[k.older].newer = at
	c.chunks[0].older = at
	c.idle++
	c.version++
	return true
}

// evict forgets the chunk that was used longest ago, of those nobody holds.
func (c *cache) evict() {
	at := c.chunks[0].newer
	c.unlink(at)
	delete(c.byHash, c.chunks[at].hash)
	c.unused = append(c.unused, at)
	c.idle--
	c.version++
}

func (c *cache) unlink(at int32) {
	k := c.chunks[at]
	c.chunks[k.older].newer = k.newer
	c.chunks[k.newer].older = k.older
}

package replay

// cache knows the chunks of prompts in the blocks of an engine, or of the cell's
// store, by their hashes. A chunk that a request holds stays; the others are in
// the list of what is free, and leave when they are the oldest there.
type cache struct {
	byHash  map[uint64]int32
	chunks  []chunk // chunks[0] is none
	unused  []int32
	free    *freeList
	blocks  int32 // of a chunk
	idle    int32 // chunks that no request holds
	version uint64
	// evicted counts chunks that have left.
	evicted int64
}

type chunk struct {
	hash    uint64
	holders int32
	span    int32 // where it is in the list, while no request holds it
}

func newCache(free *freeList) *cache {
	c := &cache{byHash: make(map[uint64]int32), chunks: make([]chunk, 1), free: free}
	free.forget = c.forget
	return c
}

// held is how many leading chunks are there, and how many of these requests
// hold.
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

// take holds a chunk that is there, and says whether no request did before.
func (c *cache) take(hash uint64) (first bool) {
	k := &c.chunks[c.byHash[hash]]
	k.holders++
	if k.holders > 1 {
		return false
	}
	c.free.remove(k.span)
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

// give lets go of a chunk, and says whether no request holds it now.
func (c *cache) give(hash uint64) (last bool) {
	at := c.byHash[hash]
	k := &c.chunks[at]
	k.holders--
	if k.holders > 0 {
		return false
	}
	k.span = c.free.push(span{blocks: c.blocks, chunk: at})
	c.idle++
	c.version++
	return true
}

// forget is told by the list of what is free that a chunk's blocks are taken.
func (c *cache) forget(at int32) {
	delete(c.byHash, c.chunks[at].hash)
	c.unused = append(c.unused, at)
	c.idle--
	c.evicted++
	c.version++
}

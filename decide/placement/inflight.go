package placement

// InFlight is which prefixes engines are computing for requests that are under way: each
// will hold them when it comes to the next request. It is bounded for each engine, and
// for one goroutine at a time.
type InFlight struct {
	limit   int
	engines map[string]map[uint64]int // how many requests under way have a hash
}

// NewUnderway remembers at most limit hashes for each engine.
func NewUnderway(limit int) *InFlight {
	return &InFlight{limit: max(limit, 1), engines: make(map[string]map[uint64]int)}
}

// Begin says that an engine is to compute a prompt. What it returns is for End: the part
// of the prompt that there was room to remember.
func (c *InFlight) Begin(engine string, p Prefix) Prefix {
	hashes := c.engines[engine]
	if hashes == nil {
		hashes = make(map[uint64]int)
		c.engines[engine] = hashes
	}
	for i, hash := range p.Hashes {
		if hashes[hash] == 0 && len(hashes) == c.limit {
			p.Hashes = p.Hashes[:i]
			break
		}
		hashes[hash]++
	}
	return p
}

// End says that an engine has computed what Begin returned, or will not.
func (c *InFlight) End(engine string, p Prefix) {
	hashes := c.engines[engine]
	for _, hash := range p.Hashes {
		if hashes[hash]--; hashes[hash] <= 0 {
			delete(hashes, hash)
		}
	}
	if len(hashes) == 0 {
		delete(c.engines, engine)
	}
}

// Held is how many leading hashes of p are computed by an engine for others.
func (c *InFlight) Held(engine string, p Prefix) int {
	hashes := c.engines[engine]
	for i, hash := range p.Hashes {
		if hashes[hash] == 0 {
			return i
		}
	}
	return len(p.Hashes)
}

// Len is how many hashes are computed by an engine.
func (c *InFlight) Len(engine string) int { return len(c.engines[engine]) }

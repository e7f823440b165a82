package placement

// Index remembers which prefixes each engine was given: what its cache holds,
// unless it has forgotten. It is bounded for each engine, and forgets what was
// used longest ago. It is for one goroutine at a time.
type Index struct {
	limit   int
	engines map[string]*holdings
}

// NewIndex remembers at most limit hashes for each engine.
func NewIndex(limit int) *Index {
	return &Index{limit: max(limit, 1), engines: make(map[string]*holdings)}
}

// holdings is what one engine holds: a map into a ring of entries in the order of
// their last use, the oldest after the head.
type holdings struct {
	limit   int
	entries []entry
	byHash  map[uint64]int32
	newest  int32
}

func newHoldings(limit int) *holdings {
	return &holdings{limit: limit, byHash: make(map[uint64]int32)}
}

type entry struct {
	hash         uint64
	older, newer int32
	lastUse      int64
}

// Limit bounds one engine by what its cache can hold, in hashes.
func (x *Index) Limit(engine string, hashes int) {
	s := x.holdings(engine)
	s.limit = min(max(hashes, 1), x.limit)
	if len(s.entries) > s.limit {
		x.engines[engine] = newHoldings(s.limit) // a smaller cache is another cache
	}
}

func (x *Index) holdings(engine string) *holdings {
	s := x.engines[engine]
	if s == nil {
		s = newHoldings(x.limit)
		x.engines[engine] = s
	}
	return s
}

// Note says that engine holds the prefix, as of now.
func (x *Index) Note(engine string, p Prefix, now int64) {
	x.holdings(engine).note(p, now)
}

func (s *holdings) note(p Prefix, now int64) {
	hashes := p.Hashes
	if len(hashes) > s.limit {
		hashes = hashes[:s.limit]
	}
	// The end goes in first, so that it is forgotten before what it stands on.
	for i := len(hashes) - 1; i >= 0; i-- {
		s.touch(hashes[i], now)
	}
}

// Held is how many leading hashes of p the engine holds, of those that were
// used at since or later.
func (x *Index) Held(engine string, p Prefix, since int64) int {
	s := x.engines[engine]
	if s == nil {
		return 0
	}
	return s.held(p, since)
}

func (s *holdings) held(p Prefix, since int64) int {
	for i, hash := range p.Hashes {
		if !s.has(hash, since) {
			return i
		}
	}
	return len(p.Hashes)
}

// has tells whether a hash was used at since or later.
func (s *holdings) has(hash uint64, since int64) bool {
	at, has := s.byHash[hash]
	return has && s.entries[at].lastUse >= since
}

// Forget drops what is known of an engine: it is gone, or begins anew.
func (x *Index) Forget(engine string) { delete(x.engines, engine) }

// Len is how many hashes are remembered of an engine.
func (x *Index) Len(engine string) int {
	if s := x.engines[engine]; s != nil {
		return len(s.byHash)
	}
	return 0
}

func (s *holdings) touch(hash uint64, now int64) {
	at, has := s.byHash[hash]
	switch {
	case has && at == s.newest:
		s.entries[at].lastUse = now
		return
	case has:
		s.unlink(at)
	case len(s.entries) < s.limit:
		at = int32(len(s.entries))
		s.entries = append(s.entries, entry{})
	default:
		at = s.entries[s.newest].newer // the ring closes: the oldest
		delete(s.byHash, s.entries[at].hash)
		if at == s.newest { // the only one
			s.entries[at] = entry{hash: hash, older: at, newer: at, lastUse: now}
			s.byHash[hash] = at
			return
		}
		s.unlink(at)
	}
	s.byHash[hash] = at
	s.link(at, hash, now)
}

func (s *holdings) unlink(at int32) {
	e := s.entries[at]
	s.entries[e.older].newer = e.newer
	s.entries[e.newer].older = e.older
}

// link makes an entry the newest.
func (s *holdings) link(at int32, hash uint64, now int64) {
	e := entry{hash: hash, older: at, newer: at, lastUse: now}
	if len(s.byHash) > 1 {
		oldest := s.entries[s.newest].newer
		e.older, e.newer = s.newest, oldest
		s.entries[s.newest].newer, s.entries[oldest].older = at, at
	}
	s.entries[at], s.newest = e, at
}

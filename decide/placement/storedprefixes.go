package placement

// StoredPrefixes is which prompts the cell's object cache keeps, as far as the one who places
// requests can know: those that engines which share it have computed, unless one of
// them looked for a prompt lately and found less. Owners do not tell what they evict, so it
// is a belief: it ends a while after its last use, and engines' answers correct it. It
// is bounded, and for one goroutine at a time.
type StoredPrefixes struct {
	life, doubt int64
	known       *holdings
	// missed has the first hash of a prompt that was looked for and not found; what is
	// told of a prompt ends there for as long as the doubt lasts.
	missed *holdings
}

// NewKept remembers at most limit hashes, each for life after its last use, on the clock
// that the methods are told the time by. For doubt after one was not found it is not
// believed to be kept, even if it was given to the object cache again: who cannot fetch
// it now will not be able to in a moment.
func NewKept(limit int, life, doubt int64) *StoredPrefixes {
	k := &StoredPrefixes{life: life, doubt: doubt, known: &holdings{limit: max(limit, 1)}, missed: &holdings{limit: max(limit/4, 1)}}
	k.Forget()
	return k
}

// Note says that a prompt's cache was given to the object cache, as of now.
func (k *StoredPrefixes) Note(p Prefix, now int64) { k.known.note(p, now) }

// Held is how many leading hashes of p are believed to be kept.
func (k *StoredPrefixes) Held(p Prefix, now int64) int {
	held := k.known.held(p, now-k.life)
	since := now - k.doubt
	for i, hash := range p.Hashes[:held] {
		if k.missed.has(hash, since) {
			return i
		}
	}
	return held
}

// Missed says that an engine needed p, and had no more than the first found hashes of
// it from anywhere.
func (k *StoredPrefixes) Missed(p Prefix, found int, now int64) {
	if found = max(found, 0); found < len(p.Hashes) {
		k.missed.touch(p.Hashes[found], now)
	}
}

// Found says that an engine has fetched the first hashes of p: they are there.
func (k *StoredPrefixes) Found(p Prefix, hashes int, now int64) {
	p.Hashes = p.Hashes[:min(max(hashes, 0), len(p.Hashes))]
	for _, hash := range p.Hashes {
		if _, was := k.missed.byHash[hash]; was {
			k.missed.touch(hash, never)
		}
	}
	k.known.note(p, now)
}

// never is before every doubt.
const never = -1 << 63

// Forget drops everything: the object cache is gone.
func (k *StoredPrefixes) Forget() {
	k.known, k.missed = newHoldings(k.known.limit), newHoldings(k.missed.limit)
}

// Len is how many hashes are remembered.
func (k *StoredPrefixes) Len() int { return len(k.known.entries) }

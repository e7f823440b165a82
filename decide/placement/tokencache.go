package placement

import "slices"

// TokenCache remembers which tokens the texts of earlier prompts came to, so that a
// later prompt that begins alike can be looked for among blocks of tokens
// without a tokenizer. It is bounded, and for one goroutine at a time.
type TokenCache struct {
	limit, size int // in bytes of memory, about
	byHash      map[uint64]*learned
	byWhole     map[uint64]*learned
	order       []*learned // the oldest first
}

// learned is one text.
type learned struct {
	prefix Prefix
	tokens []uint32
}

// What an entry takes beside its tokens: its place in the order and by its whole text,
// and for each chunk of the text a hash and its place in a map.
const (
	entryBytes = 256
	chunkBytes = 64
)

// bytes is the memory that an entry takes, about.
func (e *learned) bytes() int { return entryBytes + 4*len(e.tokens) + chunkBytes*len(e.prefix.Hashes) }

// NewLexicon takes so much memory, about.
func NewLexicon(limitBytes int) *TokenCache {
	return &TokenCache{limit: limitBytes, byHash: make(map[uint64]*learned), byWhole: make(map[uint64]*learned)}
}

// Learn takes in what a text came to. It keeps p's hashes, and no more of tokens than
// there are.
func (l *TokenCache) Learn(p Prefix, tokens []uint32) {
	entry := &learned{p, tokens}
	size := entry.bytes()
	if p.Bytes == 0 || len(tokens) == 0 || size > l.limit || l.byWhole[p.Whole] != nil {
		return
	}
	for l.size+size > l.limit {
		l.forgetOldest()
	}
	entry.tokens = slices.Clone(tokens)
	l.order, l.size = append(l.order, entry), l.size+size
	l.byWhole[p.Whole] = entry
	for _, hash := range p.Hashes {
		l.byHash[hash] = entry
	}
}

func (l *TokenCache) forgetOldest() {
	entry := l.order[0]
	l.order[0] = nil
	l.order, l.size = l.order[1:], l.size-entry.bytes()
	delete(l.byWhole, entry.prefix.Whole)
	for _, hash := range entry.prefix.Hashes {
		if l.byHash[hash] == entry {
			delete(l.byHash, hash)
		}
	}
}

// Recall returns the tokens that a text begins with, as far as an earlier one
// tells. All of them are known, and whole is true, where it was the same text;
// of one that only begins alike, those of the common part, in proportion.
func (l *TokenCache) Recall(p Prefix) (tokens []uint32, whole bool) {
	if entry := l.byWhole[p.Whole]; entry != nil && p.Bytes == entry.prefix.Bytes {
		return entry.tokens, true
	}
	for i := len(p.Hashes) - 1; i >= 0; i-- {
		if entry := l.byHash[p.Hashes[i]]; entry != nil {
			// A client can send texts that make two hashes equal; then they have less in common.
			common := min((i+1)*textChunk, entry.prefix.Bytes)
			return entry.tokens[:len(entry.tokens)*common/entry.prefix.Bytes], false
		}
	}
	return nil, false
}

// Size is how many bytes of memory are taken, about.
func (l *TokenCache) Size() int { return l.size }

package replay

// store is the cell's store of prompts: chunks that engines have computed, as
// many as fit. What is found there is fetched over a link.
type store struct {
	limit  int64 // tokens
	chunks *cache
}

// newStore is nil where there is none.
func newStore(tokens int64) *store {
	if tokens == 0 {
		return nil
	}
	s := &store{limit: tokens, chunks: newCache(newFreeList(0))}
	s.chunks.blocks = 1 // a chunk is what is counted
	return s
}

// keep takes a chunk that an engine has computed; one that is there is used once
// more.
func (s *store) keep(hash uint64, tokens int32) {
	if s == nil {
		return
	}
	if !s.chunks.put(hash) {
		s.chunks.take(hash)
	}
	s.chunks.give(hash)
	for int64(s.chunks.idle)*int64(tokens) > s.limit {
		s.chunks.free.take(1)
	}
}

// held is how many leading tokens of a request's prompt are there.
func (s *store) held(q *sequence) int32 {
	if s == nil || q.prefixTokens == 0 {
		return 0
	}
	there, _ := s.chunks.held(q.prefix, q.chunks(q.prompt))
	return there * q.prefixTokens
}

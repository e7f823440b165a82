package doorstore

import (
	"context"
	"sync"
)

// staging is memory that objects pass through between a client and the cache, bounded
// for all clients together. One object may be larger than all of it.
type staging struct {
	turn   chan struct{} // held by who takes tokens, so that two never wait for each other
	tokens chan struct{}
	pool   sync.Pool
}

const (
	stagingToken  = 1 << 20
	stagingTokens = 256
	// stagingKept is up to where memory is used again.
	stagingKept = 4 << 20
)

func newStaging() *staging {
	s := &staging{turn: make(chan struct{}, 1), tokens: make(chan struct{}, stagingTokens)}
	s.pool.New = func() any { return new([]byte) }
	return s
}

// take waits for memory.
func (s *staging) take(ctx context.Context, size uint64) (memory []byte, giveBack func(), err error) {
	want := int(min((size+stagingToken-1)/stagingToken, stagingTokens))
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-s.turn }()
	for have := range want {
		select {
		case s.tokens <- struct{}{}:
		case <-ctx.Done():
			s.give(have)
			return nil, nil, ctx.Err()
		}
	}
	pooled := s.pool.Get().(*[]byte)
	if uint64(cap(*pooled)) < size {
		*pooled = make([]byte, size)
	}
	return (*pooled)[:size], func() {
		if cap(*pooled) > stagingKept {
			*pooled = nil
		}
		s.pool.Put(pooled)
		s.give(want)
	}, nil
}

func (s *staging) give(n int) {
	for range n {
		<-s.tokens
	}
}

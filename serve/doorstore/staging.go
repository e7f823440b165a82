package doorstore

import (
	"context"
	"slices"
	"sync"

	"meridian/serve/doorserver"
)

// staging is memory that objects pass through between a client and the cache. It is bounded for all
// clients together, and for each: a client whose memory does not come holds no more than its share,
// for as long as it likes. One object may be larger than a share.
type staging struct {
	self uint32 // the user of this process
	pool sync.Pool

	mu      sync.Mutex // protects the rest
	free    int
	held    map[holder]int
	waiting []*waiter // in the order in which they came
}

// holder is a process, or all processes of a user.
type holder struct {
	user    uint32
	process int // 0: all
}

// waiter is a wait for memory. What it gets is under the staging's mu.
type waiter struct {
	holders []holder
	want    int
	got     chan struct{} // closed when it has it
}

const (
	stagingToken  = 1 << 20
	stagingTokens = 256
	// A process has a quarter of the tokens at most, and another user's processes together half:
	// each of them could start more.
	processTokens = stagingTokens / 4
	userTokens    = stagingTokens / 2
	// stagingKept is up to where memory is used again.
	stagingKept = 4 << 20
)

func newStaging(self uint32) *staging {
	s := &staging{self: self, free: stagingTokens, held: make(map[holder]int)}
	s.pool.New = func() any { return new([]byte) }
	return s
}

// take waits for memory to copy what a client has, or gets.
func (s *staging) take(ctx context.Context, client doorserver.Client, size uint64) (memory []byte, giveBack func(), err error) {
	w := &waiter{
		holders: []holder{{client.User, client.Process}},
		want:    int(min((size+stagingToken-1)/stagingToken, processTokens)),
		got:     make(chan struct{}),
	}
	if client.User != s.self {
		w.holders = append(w.holders, holder{user: client.User})
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.serve()
	s.mu.Unlock()
	select {
	case <-w.got:
	case <-ctx.Done():
		s.leave(w)
		return nil, nil, ctx.Err()
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
		s.giveBack(w)
	}, nil
}

// serve gives tokens to those that wait. Who has its share waits for its own, and holds up no other
// process. mu is held.
func (s *staging) serve() {
	enough := true // for the first who waits for the others: else many small ones would keep out a large one
	waits := make(map[holder]bool)
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		process := w.holders[0]
		if !enough || waits[process] { // so do small ones of the same process
			return false
		}
		if !s.isWithinShare(w) {
			waits[process] = true
			return false
		}
		if enough = s.free >= w.want; enough {
			s.count(w, w.want)
			close(w.got)
		}
		return enough
	})
}

func (s *staging) isWithinShare(w *waiter) bool {
	for _, h := range w.holders {
		share := processTokens
		if h.process == 0 {
			share = userTokens
		}
		if s.held[h]+w.want > share {
			return false
		}
	}
	return true
}

func (s *staging) count(w *waiter, tokens int) {
	s.free -= tokens
	for _, h := range w.holders {
		if s.held[h] += tokens; s.held[h] == 0 {
			delete(s.held, h)
		}
	}
}

func (s *staging) giveBack(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(w, -w.want)
	s.serve()
}

// leave ends a wait, which may have ended well meanwhile.
func (s *staging) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.serve() // who stood behind it
		return
	}
	s.count(w, -w.want)
	s.serve()
}

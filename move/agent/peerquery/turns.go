package peerquery

import (
	"sync"

	"meridian/kv"
)

// queuedQuestion is a question that waits for its peer's turn.
type queuedQuestion struct {
	by       kv.Member
	number   uint64
	question Question
}

const (
	// queuedOfPeer bounds how many questions of one peer wait, queued those of all: further
	// ones are dropped, and who asked hears nothing.
	queuedOfPeer = 16
	queued       = 256
)

// turns are the questions of others: those of one peer are answered one after the other, so
// that a peer that takes its answers slowly keeps no other waiting.
type turns struct {
	mu      sync.Mutex                  // protects the rest
	of      map[string][]queuedQuestion // by the peer's name; the first is being answered
	waiting int
}

// add queues a question, unless too many wait. A peer that had none needs a goroutine.
func (t *turns) add(q queuedQuestion) (first, taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.of[q.by.Name]
	if len(of) == queuedOfPeer || t.waiting == queued {
		return false, false
	}
	t.of[q.by.Name] = append(of, q)
	t.waiting++
	return len(of) == 0, true
}

// next ends a peer's question, and is its next one, if there is one.
func (t *turns) next(peer string) (q queuedQuestion, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
	left := t.of[peer][1:]
	if len(left) == 0 {
		delete(t.of, peer)
		return q, false
	}
	t.of[peer] = left
	return left[0], true
}

package directory

import (
	"context"
	"sync"
)

// keyLocks lets one write of this process at a time through for each key. Only so
// does a lease know which of two writes came last, and never puts back what
// was deleted since.
type keyLocks struct {
	mu    sync.Mutex // protects taken
	taken map[string]chan struct{}
}

// take waits for key's turn; the caller gives it back.
func (t *keyLocks) take(ctx context.Context, key string) (giveBack func(), err error) {
	for {
		t.mu.Lock()
		given, busy := t.taken[key]
		if !busy {
			mine := make(chan struct{})
			t.taken[key] = mine
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.taken, key)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-given:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

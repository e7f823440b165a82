package fabrictest

import (
	"fmt"
	"sync"

	"meridian/kv"
	"meridian/move/fabric"
)

// guard is what a fabric under test asks before a peer touches its memory. It
// opens everything but what was revoked, as an agent's table of grants would.
type guard struct {
	mu      sync.Mutex // protects the rest
	revoked map[kv.ID]bool
	sums    map[kv.ID]*fabric.Sums
}

// SumsOf is what a grant wants to be summed.
func (g *guard) SumsOf(grant kv.ID) *fabric.Sums {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sums[grant]
}

func (g *guard) want(grant kv.ID, s *fabric.Sums) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sums == nil {
		g.sums = make(map[kv.ID]*fabric.Sums)
	}
	g.sums[grant] = s
}

// Admit refuses an access under a grant that was revoked.
func (g *guard) Admit(a fabric.Access) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked[a.Grant] {
		return fmt.Errorf("%w: %s", fabric.ErrGrantRevoked, a.Grant)
	}
	return nil
}

func (g *guard) revoke(grant kv.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.revoked == nil {
		g.revoked = make(map[kv.ID]bool)
	}
	g.revoked[grant] = true
}

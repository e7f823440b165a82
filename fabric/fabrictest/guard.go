package fabrictest

import (
	"fmt"
	"sync"

	"meridian/fabric"
	"meridian/kv"
)

// guard is what a fabric under test asks before a peer touches its memory. It
// opens everything but what was revoked, as an agent's table of grants would.
type guard struct {
	mu      sync.Mutex // protects revoked
	revoked map[kv.ID]bool
}

// Admit refuses whoever comes with a grant that was revoked.
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

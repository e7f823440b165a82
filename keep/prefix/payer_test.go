package prefix_test

import (
	"fmt"
	"testing"

	"meridian/keep/prefix"
	"meridian/keep/prefix/keys"
	"meridian/keep/store"
	"meridian/move/agent"
	"meridian/move/transceiver/handoff"
)

// keepFor is keep for a tenant, empty for none, of tokens under a salt.
func (e *engine) keepFor(t *testing.T, tenant, salt string, p handoff.Content) {
	t.Helper()
	p.Scope.Salt = salt
	blocks := e.blocksFor(len(p.Tokens), 3)
	e.fill(blocks, p)
	id := agent.NewID()
	if err := e.node.Keep(soon(t), prefix.Keep{Engine: e.ID, Tenant: tenant, Transfer: id, Content: p, Holding: holding(blocks)}); err != nil {
		t.Fatal(err)
	}
	e.node.awaitFreed(t, id)
}

// Salts that a client makes up take nothing of another tenant's share: neither at the owner of
// the same agent nor at another's, nor where the tenant is not said, so that it is the engine,
// or not read, so that it is the agent.
func TestInventedSaltsTakeNothingOfAnotherTenant(t *testing.T) {
	for _, c := range []struct {
		name     string
		inventor string
		here     bool
		reads    int
	}{
		{"at its own agent", "inventor", true, keys.LastKind},
		{"at another agent", "inventor", false, keys.LastKind},
		{"of no tenant", "", false, keys.LastKind},
		{"at an owner that reads no tenants", "inventor", false, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			cell := newCell(t, "inproc")
			cell.start("m", nodeOptions{})
			o := cell.start("o", nodeOptions{keeps: arenaBytes, store: func(s *store.Options) { s.Owner.Prefixes = c.reads }})
			quiet := cell.engine("quiet", publisher, o)
			at := o
			if !c.here {
				at = cell.start("elsewhere", nodeOptions{})
			}
			inventor := cell.engine("inventor", publisher, at)
			quiet.keepFor(t, "quiet", "salt", prompt(128, 1))
			o.settled(t)
			for n := 0; ; n++ {
				inventor.keepFor(t, c.inventor, fmt.Sprint("salt", n), prompt(128, 1000))
				if stats, _ := o.store.Kept(); stats.Evictions > 100 {
					break
				}
				if n > 5000 {
					t.Fatal("the owner is not full")
				}
			}
			o.settled(t)
			p := prompt(128, 1)
			p.Scope.Salt = "salt"
			if tokens := quiet.findOnly(t, p); tokens != 128 {
				t.Errorf("of 128 tokens within its tenant's share %d are left", tokens)
			}
		})
	}
}
